//! `holdfast heap grant`, `revoke` and `grants`: what other keys may do with a heap.

use holdfast_identity::LEGACY_KEY;
use holdfast_region::{
    AccessError, Grant, KeyFingerprint, NameSpace, OwnerKey, RegionError, RegionName, Rights,
};

use crate::grant_args::{GrantArgs, GrantsArgs, RevokeArgs};
use crate::identity::{owner_key, ownership_failure};
use holdfast_command::exit::Failure;
use holdfast_command::output::{print, print_json, print_table, say};
use holdfast_command::size::show_size;

pub fn grant(args: &GrantArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let owner = owner_key(&names, &args.owner, &args.name)?;
    // Before a key is made: there must be something to grant, and it must be ours to grant.
    names.grants(&args.name, &owner)?;
    let Some(to) = &args.to else {
        holdfast_identity::open_to_all(&names, &args.name, &owner).map_err(ownership_failure)?;
        print(&format!("{}: every applet may use it\n", args.name))?;
        return Ok(0);
    };
    let (key, label) = grantee(&names, to)?;
    let rights = if args.rw { Rights::Write { quota_bytes: args.quota } } else { Rights::Read };
    let grant = Grant::new(key, label, rights);
    let closes = holdfast_identity::grant(&names, &args.name, &owner, grant);
    let others = match closes.map_err(ownership_failure)? {
        true => "; applets without a grant may no longer use it",
        false => "",
    };
    print(&format!("{}: {to} may {}{others}\n", args.name, in_words(rights)))?;
    Ok(0)
}

/// A key by its fingerprint, or by its name, which is then its label.
fn grantee(names: &NameSpace, text: &str) -> Result<(KeyFingerprint, Option<RegionName>), Failure> {
    if let Some(key) = KeyFingerprint::parse(text) {
        return Ok((key, None));
    }
    let key = super::key_for_new(names, text)?;
    Ok((KeyFingerprint::from_bytes(key.fingerprint()), RegionName::parse(text).ok()))
}

pub fn revoke(args: &RevokeArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let owner = owner_key(&names, &args.owner, &args.name)?;
    if args.every_applet {
        holdfast_identity::close(&names, &args.name, &owner).map_err(ownership_failure)?;
        print(&format!(
            "{}: no applet without a grant may use it from the next opening on\n",
            args.name
        ))?;
        return Ok(0);
    }
    let Some(from) = &args.from else {
        holdfast_identity::revoke_all(&names, &args.name, &owner).map_err(ownership_failure)?;
        print(&format!("{}: only its owner may use it from the next opening on\n", args.name))?;
        return Ok(0);
    };
    // A key file may be gone, or be another one by now: what was granted under its name goes, too.
    let mut keys: Vec<_> = KeyFingerprint::parse(from).into_iter().collect();
    if keys.is_empty() {
        let key = OwnerKey::load(names.places(), from)?;
        keys.extend(key.map(|key| KeyFingerprint::from_bytes(key.fingerprint())));
    }
    let is_meant = |grant: &Grant| {
        keys.contains(&grant.key)
            || grant.label.as_ref().is_some_and(|label| label.as_str() == from)
    };
    let revoked = holdfast_identity::revoke(&names, &args.name, &owner, is_meant);
    if revoked.map_err(ownership_failure)? == 0 {
        let (name, key) = (args.name.to_string(), from.clone());
        return Err(RegionError::from(AccessError::NoSuchGrant { name, key }).into());
    }
    print(&format!("{}: {from} may do nothing from the next opening on\n", args.name))?;
    if holdfast_identity::is_open_to_all(&names, &args.name).is_ok_and(|is_open| is_open) {
        say(format_args!(
            "every applet may still use {0} with the key `{LEGACY_KEY}`; `holdfast heap revoke {0} --every-applet` ends \
             that",
            args.name
        ));
    }
    Ok(0)
}

pub fn list(args: &GrantsArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let owner = owner_key(&names, &args.owner, &args.name)?;
    let grants = names.grants(&args.name, &owner)?;
    if args.json {
        print_json(&grants)?;
        return Ok(0);
    }
    let rows: Vec<_> = grants.iter().map(row).collect();
    print_table(&["KEY", "RIGHTS", "QUOTA", "FINGERPRINT"], &[2], &rows)?;
    Ok(0)
}

fn row(grant: &Grant) -> Vec<String> {
    let label = grant.label.as_ref().map_or_else(|| "-".to_owned(), RegionName::to_string);
    let (rights, quota) = match grant.rights {
        Rights::Write { quota_bytes } => {
            ("rw", quota_bytes.map_or_else(|| "-".to_owned(), show_size))
        }
        _ => ("ro", "-".to_owned()),
    };
    vec![label, rights.to_owned(), quota, grant.key.to_string()]
}

fn in_words(rights: Rights) -> String {
    match rights {
        Rights::Write { quota_bytes: Some(bytes) } => {
            format!("read and write it, and let it grow to {}", show_size(bytes))
        }
        Rights::Write { quota_bytes: None } => "read and write it".to_owned(),
        _ => "read it".to_owned(),
    }
}
