//! `holdfast heap adopt`.

use holdfast_region::{NameSpace, Places, RegionState};

use holdfast_command::exit::Failure;
use holdfast_command::output::print;

pub fn run() -> Result<u8, Failure> {
    let places = Places::adopt_from_env()?;
    let (pool, home) = (places.pool().display().to_string(), places.home().display().to_string());
    let heaps = NameSpace::new(places.clone()).list()?;
    let images =
        heaps.iter().filter(|heap| heap.image.is_some() && heap.state != RegionState::Cold).count();
    print(&format!("the pool {pool} belongs to the home {home}; heaps with an image: {images}\n"))?;
    Ok(0)
}
