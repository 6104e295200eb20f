//! Destinations by name and address: [`Host`], the one form in which they are compared, maps, and virtual addresses.

mod address_map;
mod host;
mod virtual_addresses;

pub use address_map::{AddressMap, MapSource};
pub use host::Host;
pub use virtual_addresses::Virtual;
