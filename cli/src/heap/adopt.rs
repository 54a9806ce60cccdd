//! `holdfast heap adopt`: a heap changes hands, or a pool its home.

use std::path::Path;

use holdfast_identity::{GivenName, hand_over};
use holdfast_region::{NameSpace, Places, RegionName, RegionState};
use holdfast_sys::counted::counted;

use crate::identity::{Applet, owner_key, ownership_failure};
use crate::identity_args::{AdoptArgs, OwnerArgs};
use holdfast_command::exit::Failure;
use holdfast_command::output::print;

pub fn run(args: &AdoptArgs) -> Result<u8, Failure> {
    match (&args.name, &args.by) {
        (Some(heap), Some(applet)) => {
            let owner = OwnerArgs { key: args.key.clone() };
            adopt_heap(heap, applet, args.app.as_ref(), &owner)
        }
        _ => adopt_pool(),
    }
}

fn adopt_heap(
    heap: &RegionName,
    applet: &Path,
    given: Option<&GivenName>,
    owner: &OwnerArgs,
) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = owner_key(&names, owner, heap)?;
    let applet = Applet::identify(applet, given, names.places())?;
    let identity = &applet.identity;
    let report = hand_over(&names, heap, &key, identity).map_err(ownership_failure)?;
    applet.meet(names.places())?;
    let others = match report.other_grants().len() {
        0 => String::new(),
        count => {
            format!("; {} as before (`holdfast heap grants {heap}`)", counted(count, "other grant"))
        }
    };
    print(&format!("{heap}: handed over to {identity}{others}\n"))?;
    Ok(0)
}

fn adopt_pool() -> Result<u8, Failure> {
    let places = Places::adopt_from_env()?;
    let (pool, home) = (places.pool().display().to_string(), places.home().display().to_string());
    let heaps = NameSpace::new(places.clone()).list()?;
    let images =
        heaps.iter().filter(|heap| heap.image.is_some() && heap.state != RegionState::Cold).count();
    print(&format!("the pool {pool} belongs to the home {home}; heaps with an image: {images}\n"))?;
    Ok(0)
}
