//! Whether a group is one user's alone, as systems make one for each user: then what the group may
//! do, that user may do, and a umask of 0002 opens nothing to others.
//!
//! Read from `/etc/passwd` and `/etc/group`. Of a group that is in neither (of a network, or of a
//! container without such files) only its number tells: systems give it the number of its user, and
//! set that umask where both are the same (`pam_umask`).

#![forbid(unsafe_code)]

use crate::file::effective_user;

const NUMBER: usize = 2;
const PRIMARY_GROUP: usize = 3;
const MEMBERS: usize = 3;
/// The group of the superuser, which the accounts of some services have, too. Who is to be kept out
/// is in none of them, and containers whose user is in no list are in it.
const ROOT: u32 = 0;

/// Whether no user but the effective one is in a group, as far as this machine knows.
#[must_use]
pub fn is_private_group(group: u32) -> bool {
    let read = |path: &str| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    is_private_among(group, effective_user(), &read("/etc/passwd"), &read("/etc/group"))
}

fn is_private_among(group: u32, user: u32, users: &str, groups: &str) -> bool {
    let others_have_it = group != ROOT
        && lines(users).any(|line| has(&line, PRIMARY_GROUP, group) && !has(&line, NUMBER, user));
    if others_have_it {
        return false;
    }
    let own_names: Vec<&str> =
        lines(users).filter(|line| has(line, NUMBER, user)).map(|line| line[0]).collect();
    let mut found = lines(groups).filter(|line| has(line, NUMBER, group)).peekable();
    if found.peek().is_none() {
        return group == user || group == ROOT;
    }
    found.all(|line| {
        let members = line.get(MEMBERS).copied().unwrap_or_default();
        (own_names.contains(&line[0]) || group == ROOT)
            && members
                .split(',')
                .all(|member| matches!(member, "" | "root") || own_names.contains(&member))
    })
}

/// The fields of each line; there is at least one.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').map(str::trim).collect())
}

fn has(line: &[&str], field: usize, number: u32) -> bool {
    line.get(field).is_some_and(|found| found.parse::<u32>() == Ok(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1001::/home/me:/bin/sh\n\
        you:x:1001:100::/home/you:/bin/sh\nnonsense\n";

    /// A group of the user's name, with no other user in it, is private.
    #[test]
    fn group_is_private_when_nobody_else_is_in_it() {
        let is_private = |groups: &str| is_private_among(1001, 1000, USERS, groups);
        for groups in ["me:x:1001:\n", "root:x:0:\nme:x:1001:me\n", "me:x:1001"] {
            assert!(is_private(groups), "{groups}");
        }
        for groups in ["me:x:1001:you\n", "staff:x:1001:\n", "me:x:1001:\nstaff:x:1001:you\n"] {
            assert!(!is_private(groups), "{groups}");
        }
        // One that others have as their first group.
        assert!(!is_private_among(100, 1000, USERS, "me:x:100:\n"));
    }

    /// Accounts of services are no others in the superuser's group; who was put into it is one.
    #[test]
    fn group_of_the_superuser_is_private_until_users_join_it() {
        let users = "root:x:0:0::/root:/bin/sh\nhalt:x:7:0::/sbin:/sbin/halt\n";
        for groups in ["root:x:0:\n", "root:x:0:root\n", ""] {
            assert!(is_private_among(0, 0, users, groups), "{groups}");
            assert!(is_private_among(0, 100_650, users, groups), "{groups}");
        }
        assert!(!is_private_among(0, 0, users, "root:x:0:root,you\n"));
    }

    /// Of a group that the machine does not list, the number tells.
    #[test]
    fn unlisted_group_is_private_under_the_users_number() {
        assert!(is_private_among(5000, 5000, "", ""));
        assert!(!is_private_among(5001, 5000, "", ""));
        assert!(!is_private_among(100, 5000, USERS, ""));
        // A listed one of an unlisted user may be another user's.
        assert!(!is_private_among(5000, 5000, USERS, "other:x:5000:\n"));
    }
}
