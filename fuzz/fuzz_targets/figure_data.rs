//! The data of a plot, which `weft lab report --style` reads wherever they come from.
//!
//! Input: the file. Whatever it is, it is read or refused, and drawn or refused, in both styles. What was read can be written and
//! read again; what was drawn is one SVG without an element that the file brought along.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_plot::{PlotData, Style};

fuzz_target!(|input: &[u8]| {
    let Ok(data) = PlotData::parse(input) else {
        return;
    };
    let Ok(written) = serde_json::to_vec(&data) else {
        panic!("data that cannot be written");
    };
    assert_eq!(PlotData::parse(&written).ok(), Some(data.clone()));
    let widths = [40.0, 84.0, 420.0].map(|width_mm| Style::Paper { width_mm });
    for style in widths.into_iter().chain([Style::Screen]) {
        let Ok(drawn) = data.draw(style) else {
            continue;
        };
        assert!(drawn.svg.trim_end().ends_with("</svg>"));
        let elements = drawn.svg.matches("</svg>").count();
        assert!(elements == 1 && !drawn.svg.contains("<script"));
        assert_eq!(drawn.caption.is_empty(), style == Style::Screen);
    }
});
