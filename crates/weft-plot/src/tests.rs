//! Figures have the words and numbers that they are made of.

use super::*;
use crate::shapes::{number_of, tick};

fn figure(kind: Kind, values: Vec<Option<Value>>) -> Figure {
    let group = |at: usize| Group {
        at: at as f64,
        label: format!("group {at}\nsecond line"),
    };
    Figure {
        title: "Title".to_owned(),
        subtitle: "What is shown".to_owned(),
        columns: 1,
        same_scale: true,
        legend: true,
        footer: vec!["a <machine>".to_owned()],
        panels: vec![Panel {
            title: "Panel".to_owned(),
            x_label: "across".to_owned(),
            y_label: "CPU s per GB".to_owned(),
            kind,
            groups: (0..values.len()).map(group).collect(),
            series: vec![Series {
                name: "one".to_owned(),
                look: Look::number(0),
                values,
            }],
            curves: Vec::new(),
        }],
    }
}

const VALUE: Option<Value> = Some(Value {
    mid: 4.25,
    low: 4.0,
    high: 4.5,
});

#[test]
fn every_kind_is_drawn_with_its_words() {
    for kind in [Kind::Bars, Kind::Lines, Kind::LogLines] {
        let svg = figure(kind, vec![VALUE, None, VALUE])
            .svg()
            .expect("a plot");
        for words in [
            "Title",
            "Panel",
            "CPU s per GB",
            "group 2",
            "second line",
            "one",
        ] {
            assert!(svg.contains(words), "{kind:?}: {words}");
        }
        assert!(svg.contains("a &lt;machine&gt;"), "text is escaped");
        assert!(svg.trim_end().ends_with("</svg>"));
    }
    let bars = figure(Kind::Bars, vec![VALUE]).svg().expect("a plot");
    assert!(bars.contains("4.25"));
}

#[test]
fn pies_have_a_slice_for_each_series() {
    let mut pies = figure(Kind::Pies, vec![VALUE, None]);
    let series = &mut pies.panels[0].series;
    series.push(Series {
        name: "other".to_owned(),
        look: Look::number(1),
        values: vec![
            VALUE.map(|value| Value {
                mid: 12.75,
                ..value
            }),
            None,
        ],
    });
    let svg = pies.svg().expect("a plot");
    for words in ["25 %", "75 %", "group 1", "other"] {
        assert!(svg.contains(words), "{words}");
    }
    let nothing = figure(Kind::Pies, vec![None]).svg().expect("a plot");
    assert!(nothing.contains("Panel: not measured"));
}

#[test]
fn a_panel_without_values_shows_not_measured() {
    let svg = figure(Kind::LogLines, vec![None, None])
        .svg()
        .expect("a plot");
    assert!(svg.contains("Panel: not measured"));
    let svg = figure(Kind::Bars, vec![]).svg().expect("a plot");
    assert!(svg.contains("not measured"));
}

#[test]
fn values_and_groups_must_match() {
    let mut wrong = figure(Kind::Bars, vec![VALUE]);
    wrong.panels[0].series[0].values.push(None);
    assert!(wrong.svg().is_err());
    wrong.panels.clear();
    assert!(wrong.svg().is_err());
}

#[test]
fn numbers_are_short() {
    let numbers = [0.123, 4.2, 12.34, 1234.5].map(number_of);
    assert_eq!(numbers, ["0.12", "4.20", "12.3", "1234"]);
    assert_eq!([0.1 + 0.2, 20.0].map(tick), ["0.3", "20"]);
}

#[test]
fn curves_are_drawn_with_numbers_under_them() {
    let mut curves = figure(Kind::Curves, Vec::new());
    let nothing = curves.svg().expect("a plot");
    assert!(nothing.contains("not measured"));
    let Some(panel) = curves.panels.first_mut() else {
        panic!("a panel");
    };
    panel.curves = vec![Curve {
        name: "a curve".to_owned(),
        look: Look::number(1),
        points: Curve::distribution(vec![3.0, 1.0, 2.0, 40.0]),
    }];
    let svg = curves.svg().expect("a plot");
    for words in ["a curve", "across", "CPU s per GB", "\n40\n", "\n1\n"] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn a_distribution_rises_to_one_with_no_more_points_than_pixels() {
    let few = Curve::distribution(vec![3.0, 1.0, f64::NAN, 2.0, 2.0]);
    assert_eq!(
        few,
        [(1.0, 0.0), (1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    );
    let many = Curve::distribution((0..100_000).map(f64::from).collect());
    assert!(many.len() < 700, "{}", many.len());
    assert_eq!(many.last(), Some(&(99_999.0, 1.0)));
    assert!(Curve::distribution(Vec::new()).is_empty());
}

#[test]
fn a_filled_curve_is_an_area() {
    let mut one = figure(Kind::Curves, Vec::new());
    one.panels[0].series.clear();
    one.panels[0].curves = vec![Curve {
        name: "range".to_owned(),
        look: Look::number(1).filled(),
        points: vec![(0.0, 1.0), (2.0, 3.0), (2.0, 2.0), (0.0, 0.5)],
    }];
    let svg = one.svg().expect("a plot");
    assert!(
        svg.contains("<polygon") && svg.contains("opacity=\"0.22\""),
        "{svg}"
    );
}
