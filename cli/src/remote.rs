//! An applet on a server: `holdfast run https://HOST/PATH#sha256=HEX`.

use std::path::PathBuf;

use holdfast_fetch::{AppletCache, CacheError, DownloadError, PinnedAddress, fetch, is_address};
use holdfast_region::Places;

use holdfast_command::exit::{Failure, NO_APPLET, NOT_LOADABLE, host, usage};
use holdfast_command::output::with_progress;

/// The file of an applet that is named by a path, or by an address: from the cache of the home, or
/// from its server.
pub fn local(applet: PathBuf) -> Result<PathBuf, Failure> {
    // A file of such a name is meant by `./https:...`.
    let Some(text) = applet.to_str().filter(|text| is_address(text)) else { return Ok(applet) };
    let address = PinnedAddress::parse(text).map_err(usage)?;
    let cache = AppletCache::of(&Places::from_env().map_err(host)?).map_err(host)?;
    with_progress(&format!("fetching {address}"), || fetch(&address, &cache)).map_err(failure)
}

fn failure(error: DownloadError) -> Failure {
    let code = match &error {
        DownloadError::NotPinned { .. } => return usage(error),
        DownloadError::Status { .. } | DownloadError::Failed { .. } => NO_APPLET,
        DownloadError::Cache(CacheError::Io { .. } | CacheError::NotPrivate { .. }) => {
            return host(error);
        }
        _ => NOT_LOADABLE,
    };
    Failure::new(code, error)
}
