//! Batteries and UPSs, as sysfs tells of them:
//! `/sys/class/power_supply/NAME/{type,scope,status,capacity}`.

use std::fs;
use std::path::Path;

/// Whether the machine will be without power soon: its battery is nearly empty, or it runs on a
/// UPS.
pub(crate) fn is_low(directory: &Path, battery_percent: u8) -> bool {
    let supplies = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut supplies = supplies.map(|supply| supply.path());
    supplies.any(|supply| {
        let field = |name: &str| {
            fs::read_to_string(supply.join(name)).unwrap_or_default().trim().to_owned()
        };
        // The battery of a mouse is none of ours.
        if field("scope") == "Device" || field("status") != "Discharging" {
            return false;
        }
        match field("type").as_str() {
            "Battery" => {
                field("capacity").parse::<u8>().is_ok_and(|percent| percent <= battery_percent)
            }
            "UPS" => true,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A battery is low only while it is used and a ups whenever it is.
    #[test]
    fn battery_is_low_only_in_use_and_a_ups_always() {
        let directory = tempfile::tempdir().unwrap();
        let supply = directory.path().join("BAT0");
        fs::create_dir(&supply).unwrap();
        let set = |fields: &[(&str, &str)]| {
            for (name, value) in fields {
                fs::write(supply.join(name), format!("{value}\n")).unwrap();
            }
            is_low(directory.path(), 5)
        };
        assert!(!set(&[("type", "Battery"), ("status", "Discharging"), ("capacity", "6")]));
        assert!(set(&[("capacity", "5")]));
        assert!(!set(&[("status", "Charging")]));
        assert!(!set(&[("status", "Discharging"), ("scope", "Device")]));
        assert!(set(&[("scope", "System"), ("type", "UPS"), ("capacity", "90")]));
        assert!(!set(&[("type", "Mains")]));
        assert!(!set(&[("type", "Battery"), ("capacity", "full")]));
        assert!(!is_low(Path::new("/nowhere"), 5));
    }
}
