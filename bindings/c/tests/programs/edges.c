/* An applet that uses holdfast_applet.h where it may fail. */
#include <holdfast_applet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(holds) ((holds) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #holds), exit(9)))

static int context;

static int checks(holdfast_call *call, void *given) {
    size_t size = 99;
    MUST(given == &context);
    MUST(holdfast_input(call, &size) && holdfast_input(call, NULL) && size == 5);
    MUST(!memcmp(holdfast_input(call, &size), "input", 5));
    size = 99;
    MUST(!holdfast_buffer(call, &size) && size == 0 && !holdfast_buffer(call, NULL));
    MUST(!holdfast_cancelled(call));
    MUST(!holdfast_send(call, "chunk", 5) && !holdfast_send(call, NULL, 0));
    MUST(!holdfast_reply(call, "result", 6));
    MUST(holdfast_reply(call, "other", 5) == NV_REPLIED && nv_errno() == NV_REPLIED && strstr(nv_message(), "once"));
    MUST(holdfast_export("late", checks, NULL) == NV_BAD_EXPORT);
    MUST(nvmalloc("none", 8) == NULL && nv_errno() == NV_NOT_GRANTED && strstr(nv_message(), "--heap"));
    return 0;
}

static int fails(holdfast_call *call, void *given) {
    (void)given;
    holdfast_reply(call, "not sent", 8);
    holdfast_fail(call, "replaced");
    MUST(holdfast_fail(call, "fail\xff" "ed") == 1);
    return 42;
}

static int fails_silently(holdfast_call *call, void *given) {
    (void)call, (void)given;
    return -1;
}

static int crashes(holdfast_call *call, void *given) {
    (void)call, (void)given;
    abort();
}

int main(void) {
    MUST(!holdfast_export("checks", checks, &context));
    MUST(!holdfast_export("fails", fails, NULL) && !holdfast_export("fails silently", fails_silently, NULL));
    MUST(!holdfast_export("crashes", crashes, NULL));
    MUST(holdfast_export("checks", fails, NULL) == NV_BAD_EXPORT && strstr(nv_message(), "no other one"));
    MUST(holdfast_export("", fails, NULL) == NV_BAD_EXPORT && holdfast_export(NULL, fails, NULL) == NV_BAD_EXPORT);
    MUST(holdfast_export("nothing", NULL, NULL) == NV_BAD_EXPORT && holdfast_export("\xff", fails, NULL) == NV_BAD_EXPORT);
    int status = holdfast_serve();
    if (status) puts(nv_message());
    return status;
}
