//! Cases that are accepted as they are, each with its reason: the cases are of 2020, and the
//! specification has changed since. What the parser makes of them is compared all the same, with
//! its own tree.

/// Since 2025 a `select` holds what is in it; before, the parser dropped all but options and their
/// groups.
const SELECT: &str = "what is in a `select` stays there since 2025";
/// Since 2021 tags such as `div` end foreign content in a fragment, too.
const FOREIGN: &str = "tags of HTML end foreign content in a fragment, too, since 2021";

/// Cases by file and number, and why.
pub const ACCEPTED: &[(&str, &str)] = &[
    ("foreign-fragment:0", FOREIGN),
    ("foreign-fragment:1", FOREIGN),
    ("foreign-fragment:38", FOREIGN),
    ("foreign-fragment:40", FOREIGN),
    ("foreign-fragment:47", FOREIGN),
    ("foreign-fragment:48", FOREIGN),
    ("menuitem-element:13", SELECT),
    ("tests10:16", SELECT),
    ("tests10:17", SELECT),
    ("tests10:3", SELECT),
    ("tests10:4", SELECT),
    ("tests18:13", SELECT),
    ("tests18:14", SELECT),
    ("tests1:101", SELECT),
    ("tests1:29", SELECT),
    ("tests7:30", SELECT),
    ("tests9:17", SELECT),
    ("tests9:18", SELECT),
    ("tests9:4", SELECT),
    ("tests9:5", SELECT),
    ("tests_innerHTML_1:79", SELECT),
    ("tests_innerHTML_1:80", SELECT),
    ("tests_innerHTML_1:81", SELECT),
    ("webkit02:17", SELECT),
];
