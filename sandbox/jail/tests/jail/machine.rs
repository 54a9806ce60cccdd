//! Machines that lack something (X10): strict refuses, otherwise it is told; never is it silent.

use std::process::Command;

use holdfast_jail::{JailError, Layer, Layers, PathAccess, PathGrant};

use crate::victims::{WORKED, end, finish, jail, refused};

/// A missing layer is refused in strict mode and reported otherwise.
///
/// Guarantee: sandbox/missing-layers
#[test]
fn missing_layer_is_refused_only_if_strict() {
    for layer in Layer::ALL {
        let masked = || jail(&["nothing"]).layers(Layers::all()).mask(layer);
        let error = masked().strict(true).spawn().unwrap_err();
        let JailError::Weaker(weakness) = &error else {
            // This machine may lack the control group, which is looked at after the others.
            panic!("{layer}: {error}")
        };
        assert!(
            weakness.layer == layer || weakness.layer == Layer::ControlGroup,
            "{layer}: {error}"
        );
        let jailed = masked().spawn().unwrap();
        let told = jailed.weaker().iter().find(|weakness| weakness.layer == layer);
        let told = told.unwrap_or_else(|| panic!("{layer} is missing without a word"));
        assert!(!told.remedy.is_empty() && told.to_string().contains(layer.name()), "{told}");
        assert_eq!(finish(&jailed), WORKED);
    }
}

#[test]
fn a_layer_that_was_not_asked_for_is_no_weakness() {
    for layer in Layer::ALL {
        let jailed =
            jail(&["nothing"]).layers(Layers::none()).mask(layer).strict(true).spawn().unwrap();
        assert_eq!(jailed.weaker(), []);
        assert_eq!(finish(&jailed), WORKED);
    }
}

/// Directories can be granted only if some layer confines the program to them.
///
/// Guarantee: sandbox/granted-directories
/// Guarantee: sandbox/missing-layers
#[test]
fn grants_need_a_confining_layer() {
    let directory = tempfile::tempdir().unwrap();
    let grant = |guest: &std::path::Path| PathGrant {
        host: directory.path().to_owned(),
        guest: guest.to_owned(),
        access: PathAccess::ReadOnly,
    };
    let same = || jail(&["nothing"]).path(grant(directory.path()));
    let error = same().mask(Layer::Mounts).mask(Layer::Landlock).spawn().unwrap_err();
    assert!(matches!(error, JailError::Unconfined(_)), "{error}");
    let error = same().layers(Layers::none()).spawn().unwrap_err();
    assert!(matches!(error, JailError::Unconfined(_)), "{error}");
    assert_eq!(end(same().mask(Layer::Mounts)), WORKED);
    assert_eq!(end(same().mask(Layer::Landlock)), WORKED);
    // Without a root of its own a program finds things where they are, or not at all.
    let error = jail(&["nothing"])
        .path(grant("/elsewhere".as_ref()))
        .mask(Layer::Mounts)
        .spawn()
        .unwrap_err();
    assert!(matches!(error, JailError::Text { .. }), "{error}");
    // It names the one that is elsewhere.
    let both = same().path(grant("/elsewhere".as_ref())).mask(Layer::Mounts);
    let error = both.spawn().unwrap_err();
    assert!(error.to_string().contains("/elsewhere"), "{error}");
    // Rules of Landlock add up: what may only be read there could be written to.
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let within = |inner_access, outer_access| {
        let grant = |path: &std::path::Path, access| PathGrant {
            host: path.to_owned(),
            guest: path.to_owned(),
            access,
        };
        let jail = jail(&["nothing"]).path(grant(&inner, inner_access));
        jail.path(grant(directory.path(), outer_access)).mask(Layer::Mounts).spawn()
    };
    let error = within(PathAccess::ReadOnly, PathAccess::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("inner"), "{error}");
    assert_eq!(finish(&within(PathAccess::ReadWrite, PathAccess::ReadOnly).unwrap()), WORKED);
}

/// Run by the next test in a container that allows no user name spaces.
#[test]
fn in_a_container_without_name_spaces() {
    if std::env::var_os("HOLDFAST_NO_NAME_SPACES").is_none() {
        return;
    }
    let jailed = jail(&["read", "/etc/passwd"]).spawn().unwrap();
    let missing: Vec<Layer> = jailed.weaker().iter().map(|weakness| weakness.layer).collect();
    for layer in [Layer::Mounts, Layer::Processes, Layer::Network, Layer::Ipc] {
        assert!(missing.contains(&layer), "{missing:?}");
    }
    assert!(!missing.contains(&Layer::Landlock), "{missing:?}");
    assert_eq!(finish(&jailed), refused(libc::EACCES));
    let error = jail(&["nothing"]).strict(true).spawn().unwrap_err();
    assert!(
        matches!(&error, JailError::Weaker(weakness) if weakness.remedy.contains("max_user_namespaces"))
    );
}

/// Run by the next test as the only user of a name space, who is root there.
#[test]
fn in_a_container_with_one_user() {
    if std::env::var_os("HOLDFAST_ONE_USER").is_none() {
        return;
    }
    let jailed = jail(&["read", "/etc/passwd"]).spawn().unwrap();
    let missing: Vec<Layer> = jailed.weaker().iter().map(|weakness| weakness.layer).collect();
    assert_eq!(missing, [Layer::Unprivileged]);
    assert_eq!(finish(&jailed), refused(libc::ENOENT));
}

/// In a container with one user, root runs programs as itself and reports that.
///
/// Guarantee: sandbox/missing-layers
#[test]
fn single_user_root_runs_programs_as_itself() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "machine::in_a_container_with_one_user"])
        .env("HOLDFAST_ONE_USER", "1")
        .output();
    let Ok(output) = output else {
        println!("not run: there is no unshare");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare failed") {
        println!("not run: no user name space can be made: {errors}");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// Where namespaces are forbidden, the other layers still confine the program.
///
/// Guarantee: sandbox/missing-layers
#[test]
fn other_layers_hold_without_namespaces() {
    // A user name space of its own, in which it is no user, and whose limit of further ones is
    // zero.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all \
                  --inh-caps=-all --no-new-privs \"$0\" --exact machine::in_a_container_without_name_spaces";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("HOLDFAST_NO_NAME_SPACES", "1")
        .output();
    let Ok(output) = output else {
        println!("not run: there is no unshare");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare failed") || errors.contains("max_user_namespaces") {
        println!("not run: no user name space can be made, or not limited: {errors}");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}
