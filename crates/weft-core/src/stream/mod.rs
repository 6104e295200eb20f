//! Streams that end at this node (Engler and Goldberg 2021, 4.2, Figure 3).
//!
//! - `table`: a half's side, the streams that end at it; [`edge`]: the side of the socket;
//! - [`credit`]: what a half lends its edges;
//! - [`early`]: what comes before a stream has an edge; `ended`: what comes after it has ended.

pub mod credit;
pub mod early;
pub mod edge;
pub(crate) mod ended;
pub(crate) mod table;
