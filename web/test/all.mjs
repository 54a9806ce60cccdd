// All tests in one process, one after the other: each has the machine and its browser for itself.
import "./package.test.mjs";
import "./page-sums.test.mjs";
import "./host-functions.test.mjs";
import "./page-store.test.mjs";
import "./kept-sums.test.mjs";
import "./applet.test.mjs";
import "./refusals.test.mjs";
import "./fallback.test.mjs";
import "./several.test.mjs";
import "./snapshots.test.mjs";
import "./transfer.test.mjs";
import "./views.test.mjs";
import "./containers.test.mjs";
import "./documents.test.mjs";
import "./firefox.test.mjs";
import "./native.test.mjs";
