//! weft
fn main() {}
