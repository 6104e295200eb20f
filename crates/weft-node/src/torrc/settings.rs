//! settings
/// stub
#[derive(Clone, Debug)]
pub struct Settings;
