//! Figures have the words and numbers that they are made of, in both styles and all forms.

use std::fs;

use super::*;

fn figure(kind: Kind, values: Vec<Option<Value>>) -> Figure {
    let group = |at: usize| Group {
        at: at as f64,
        label: format!("group {at}\nsecond line"),
    };
    let groups: Vec<Group> = (0..values.len()).map(group).collect();
    let series = vec![Series {
        name: "one".to_owned(),
        look: Look::number(0),
        values,
    }];
    Figure {
        title: "Title".to_owned(),
        subtitle: "What is shown".to_owned(),
        columns: 1,
        same_scale: true,
        legend: true,
        footer: vec!["a <machine>".to_owned()],
        whiskers: Some(Whiskers::range("repetitions")),
        panels: vec![Panel::of_values(
            kind,
            "Panel",
            "across",
            "CPU s per GB",
            groups,
            series,
        )],
    }
}

fn value(n: usize) -> Option<Value> {
    Some(Value::between(4.25, 4.0, 4.5, n))
}

fn log(mut figure: Figure) -> Figure {
    for panel in &mut figure.panels {
        panel.scale = Scale::Log;
    }
    figure
}

const PAPER: Style = Style::Paper { width_mm: 84.0 };

/// Texts in a picture.
fn words(svg: &str) -> Vec<String> {
    let texts = svg.split("<text").skip(1);
    let texts = texts.filter_map(|text| text.split_once('>')?.1.split_once("</text>"));
    texts.map(|(text, _)| text.trim().to_owned()).collect()
}

fn has(svg: &str, text: &str) -> bool {
    words(svg).iter().any(|one| one == text)
}

#[test]
fn every_kind_is_drawn_with_its_words() {
    let kinds = [Kind::Bars, Kind::Lines].map(|kind| figure(kind, vec![value(3), None, value(3)]));
    let [bars, lines] = kinds.clone();
    for figure in kinds.into_iter().chain([log(bars), log(lines)]) {
        let svg = figure.svg().expect("a plot");
        for words in [
            "Title",
            "Panel",
            "CPU s per GB",
            "group 2",
            "second line",
            "one",
            "whiskers: least to most, n = 3 repetitions",
            "a &lt;machine&gt;",
        ] {
            assert!(has(&svg, words), "{words}: {svg}");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }
    let bars = figure(Kind::Bars, vec![value(3)]).svg().expect("a plot");
    assert!(has(&bars, "4.25"));
}

#[test]
fn a_figure_for_a_paper_leaves_its_words_to_the_caption() {
    let figure = figure(Kind::Bars, vec![value(3), value(10)]);
    let Drawn { svg, caption } = figure.draw(PAPER).expect("a plot");
    for words in ["Title", "What is shown", "Panel", "a &lt;machine&gt;"] {
        assert!(!svg.contains(words), "{words}: {svg}");
    }
    for words in ["CPU s per GB", "across", "one", "group 0"] {
        assert!(has(&svg, words), "{words}: {svg}");
    }
    assert!(svg.contains("width=\"84mm\""), "{svg}");
    assert_eq!(
        caption,
        "Title\nWhat is shown\nPanel\nWhiskers: least to most, n = 3 to 10 repetitions.\na <machine>\n"
    );
    let screen = figure.draw(Style::Screen).expect("a plot");
    assert_eq!(screen.caption, "");
}

#[test]
fn one_measurement_has_no_whisker_and_no_word_of_one() {
    for once in [
        Value::between(4.0, 3.0, 5.0, 1),
        Value::mean(4.0, None, 1),
        Value::mean(4.0, Some(1.0), 1),
    ] {
        let one = figure(Kind::Lines, vec![Some(once)]).svg().expect("a plot");
        assert!(!one.contains("whiskers"), "{one}");
        let none = figure(Kind::Lines, vec![Some(Value::exact(4.0))]);
        assert_eq!(one, none.svg().expect("a plot"));
    }
    let several = figure(Kind::Lines, vec![Some(Value::mean(4.0, Some(1.0), 2))]);
    assert!(has(
        &several.svg().expect("a plot"),
        "whiskers: least to most, n = 2 repetitions"
    ));
}

#[test]
fn whiskers_that_nothing_explains_are_refused() {
    let mut unexplained = figure(Kind::Bars, vec![value(3)]);
    unexplained.whiskers = None;
    let error = unexplained.svg().expect_err("nobody knows what they are");
    assert!(format!("{error:#}").contains("whiskers"), "{error:#}");
    unexplained.panels[0].series[0].values = vec![Some(Value::exact(1.0))];
    unexplained.svg().expect("without whiskers");
}

#[test]
fn axes_are_logarithmic_where_differences_hide_on_paper() {
    let values = [0.5, 1.0, 2.0, 3.0, 300.0].map(|number| Some(Value::exact(number)));
    let hidden = figure(Kind::Lines, values.to_vec());
    let Drawn { svg, caption } = hidden.draw(PAPER).expect("a plot");
    assert!(
        has(&svg, "10") && has(&svg, "100") && !has(&svg, "200"),
        "{svg}"
    );
    assert!(
        caption.contains("The vertical axis is logarithmic."),
        "{caption}"
    );
    assert!(
        !has(&hidden.svg().expect("a plot"), "10"),
        "not on a screen"
    );
    let mut linear = hidden.clone();
    linear.panels[0].scale = Scale::Linear;
    let Drawn { svg, caption } = linear.draw(PAPER).expect("a plot");
    assert!(!has(&svg, "10") && !caption.contains("logarithmic"));

    let mut curves = figure(Kind::Curves, Vec::new());
    let times = (0..100).map(|number| 0.1 * 1.1_f64.powi(number));
    curves.panels[0].series.clear();
    curves.panels[0].curves = vec![Curve {
        name: "times".to_owned(),
        look: Look::number(0),
        points: Curve::distribution(times.collect()),
    }];
    let Drawn { svg, caption } = curves.draw(PAPER).expect("a plot");
    assert!(has(&svg, "1000"), "{svg}");
    assert!(
        caption.contains("The horizontal axis is logarithmic."),
        "{caption}"
    );
}

#[test]
fn text_stays_on_a_narrow_sheet() {
    let mut wide = figure(Kind::Bars, vec![value(3); 9]);
    for group in &mut wide.panels[0].groups {
        group.label = "a rather long name".to_owned();
    }
    wide.panels[0].y_label = "a long description of what is measured on this axis".to_owned();
    wide.panels[0].series[0].name =
        "a series of a name that has no room in one line of a narrow figure".to_owned();
    let width = 10.0 * Style::Paper { width_mm: 60.0 }.width();
    let svg = wide
        .draw(Style::Paper { width_mm: 60.0 })
        .expect("a plot")
        .svg;
    for text in svg.split("<text").skip(1) {
        let attribute = |name: &str| {
            let (_, rest) = text
                .split_once(&format!(" {name}=\""))
                .expect("an attribute");
            rest.split_once('"').expect("its end").0.to_owned()
        };
        let number = |name: &str| attribute(name).parse::<f64>().expect("a number");
        let (x, size) = (number("x"), number("font-size"));
        let shown = text
            .split_once('>')
            .expect("text")
            .1
            .split_once('<')
            .expect("its end")
            .0;
        let long = match text.contains("rotate") {
            true => 0.0,
            false => crate::text::width_of(shown.trim(), size),
        };
        let (left, right) = match attribute("text-anchor").as_str() {
            "start" => (x, x + long),
            "end" => (x - long, x),
            _ => (x - long / 2.0, x + long / 2.0),
        };
        assert!(
            left >= -1.0 && right <= width + 1.0,
            "{shown:?} from {left} to {right} of {width}"
        );
    }
}

#[test]
fn pies_have_a_slice_for_each_series() {
    let mut pies = figure(Kind::Pies, vec![value(3), None]);
    let series = &mut pies.panels[0].series;
    series.push(Series {
        name: "other".to_owned(),
        look: Look::number(1),
        values: vec![Some(Value::exact(12.75)), None],
    });
    let svg = pies.svg().expect("a plot");
    for words in ["25 %", "75 %", "group 1", "other"] {
        assert!(has(&svg, words), "{words}");
    }
    let nothing = figure(Kind::Pies, vec![None]).svg().expect("a plot");
    assert!(has(&nothing, "Panel: not measured"));
}

#[test]
fn a_panel_without_values_shows_not_measured() {
    let svg = log(figure(Kind::Lines, vec![None, None]))
        .svg()
        .expect("a plot");
    assert!(has(&svg, "Panel: not measured"));
    let svg = figure(Kind::Bars, vec![]).svg().expect("a plot");
    assert!(svg.contains("not measured"));
}

#[test]
fn what_is_no_figure_is_refused() {
    let mut wrong = figure(Kind::Bars, vec![value(3)]);
    wrong.panels[0].series[0].values.push(None);
    assert!(wrong.svg().is_err());
    wrong.panels.clear();
    assert!(wrong.svg().is_err());
    for number in [f64::NAN, f64::INFINITY] {
        let wrong = figure(Kind::Bars, vec![Some(Value::exact(number))]);
        let error = wrong.svg().expect_err("no number");
        assert!(format!("{error:#}").contains("Panel"), "{error:#}");
    }
    let mut many = figure(Kind::Bars, vec![value(3)]);
    many.panels = vec![many.panels[0].clone(); 401];
    assert!(many.svg().is_err());
    // Each has a hundred dashes.
    let zigzag = (0..300_000).map(|place| (1.0, f64::from(place % 2)));
    let mut long = figure(Kind::Curves, Vec::new());
    long.panels[0].curves = vec![Curve {
        name: "long".to_owned(),
        look: Look::number(1).dashed(),
        points: zigzag.collect(),
    }];
    let error = long.svg().expect_err("too many lines");
    assert!(format!("{error:#}").contains("more lines"), "{error:#}");
}

#[test]
fn text_is_text() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = Folder::existing(place.path()).expect("a folder");
    let mut odd = figure(Kind::Bars, vec![value(3)]);
    odd.title = "<script>\u{0}\u{1b}[31m &\u{fffe}".to_owned();
    odd.panels[0].series[0].name = "]]> \u{8}日本".to_owned();
    let path = folder.plot("odd", &odd).expect("drawn, as PNG too");
    let svg = fs::read_to_string(path).expect("a plot");
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
}

#[test]
fn any_number_is_drawn() {
    for number in [5e-324, 1e-300, 1e300, f64::MAX, -1.0, -1e300] {
        for kind in [Kind::Bars, Kind::Lines, Kind::Pies] {
            let values = vec![Some(Value::between(number, -number, number, 3)), value(3)];
            for style in [Style::Screen, PAPER] {
                let one = figure(kind, values.clone());
                one.draw(style).expect("a plot");
                log(one).draw(style).expect("a plot");
            }
        }
    }
}

#[test]
fn curves_are_drawn_with_numbers_under_them() {
    let mut curves = figure(Kind::Curves, Vec::new());
    let nothing = curves.svg().expect("a plot");
    assert!(nothing.contains("not measured"));
    curves.panels[0].curves = vec![Curve {
        name: "a curve".to_owned(),
        look: Look::number(1),
        points: Curve::distribution(vec![3.0, 1.0, 2.0, 40.0]),
    }];
    let svg = curves.svg().expect("a plot");
    for words in ["a curve", "across", "CPU s per GB", "40", "1"] {
        assert!(has(&svg, words), "{words}");
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

/// The dark pixels of a PNG, with its width, its height and its pixels in a metre.
fn dark(bytes: &[u8]) -> (usize, u32, u32, Option<u32>) {
    let decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    let mut reader = decoder.read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let frame = reader.next_frame(&mut pixels).expect("pixels");
    let density = reader.info().pixel_dims.map(|one| one.xppu);
    let dark = pixels
        .chunks(3)
        .filter(|pixel| pixel.iter().all(|part| *part < 90));
    (dark.count(), frame.width, frame.height, density)
}

#[test]
fn png_and_pdf_have_text_without_anything_installed() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("plots");
    let folder = Folder::create(&path).expect("a new one").with_style(PAPER);
    let mut plain = figure(Kind::Bars, vec![value(3)]);
    folder.plot("with", &plain).expect("drawn");
    // The same figure without its words.
    plain.panels[0].y_label.clear();
    plain.panels[0].x_label.clear();
    plain.legend = false;
    folder.plot("without", &plain).expect("drawn");
    let read = |name: &str| fs::read(path.join(name)).expect("a file");
    let (with, width, _, density) = dark(&read("with.png"));
    let (without, ..) = dark(&read("without.png"));
    assert_eq!(width, 1985, "84 mm at 600 dots per inch");
    assert_eq!(density, Some(23_622));
    assert!(with > without + 1000, "{with} {without}");
    // 84 mm are 238.11 points; text is in a font that the file has.
    let pdf = String::from_utf8_lossy(&read("with.pdf")).into_owned();
    assert!(pdf.starts_with("%PDF-"), "no PDF");
    assert!(
        pdf.contains("/MediaBox[0 0 238.1"),
        "another size than 84 mm"
    );
    assert!(
        pdf.contains("/FontFile") && pdf.contains("DejaVuSans"),
        "its font"
    );
    assert!(read("with.caption.txt").starts_with(b"Title\n"));

    let screen = Folder::existing(&path).expect("it is there");
    screen.plot("screen", &plain).expect("drawn");
    let (_, width, _, density) = dark(&read("screen.png"));
    assert_eq!((width, density), (1500, None));
    assert!(!path.join("screen.pdf").exists());
}

#[test]
fn a_plot_is_the_same_every_time() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = Folder::existing(place.path())
        .expect("a folder")
        .with_style(PAPER);
    let plain = figure(Kind::Bars, vec![value(3)]);
    for name in ["one", "two"] {
        folder.plot(name, &plain).expect("drawn");
    }
    let read = |name: &str, end: &str| {
        fs::read(place.path().join(format!("{name}.{end}"))).expect("a file")
    };
    for end in ["svg", "png", "pdf", "figure.json"] {
        assert_eq!(read("one", end), read("two", end), "{end}");
    }
}

#[test]
fn a_plot_is_drawn_again_of_its_data_in_another_style() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |style| {
        Folder::existing(place.path())
            .expect("a folder")
            .with_style(style)
    };
    let graph = FlameGraph {
        title: "Title".to_owned(),
        lines: vec!["a;b 3".to_owned()],
    };
    at(Style::Screen)
        .plot("bars", &figure(Kind::Bars, vec![value(3), None]))
        .expect("drawn");
    at(Style::Screen)
        .flame_graph("flames", &graph)
        .expect("drawn");
    let path = |name: &str, end: &str| place.path().join(format!("{name}{end}"));
    for name in ["bars", "flames"] {
        let data = fs::read(path(name, KEPT)).expect("its data");
        let first = fs::read_to_string(path(name, ".svg")).expect("a plot");
        at(PAPER).plot_again(name, &data).expect("drawn again");
        let paper = fs::read_to_string(path(name, ".svg")).expect("a plot");
        assert!(
            !paper.contains("Title") && paper.contains("84mm"),
            "{paper}"
        );
        assert!(path(name, ".pdf").is_file() && path(name, CAPTION).is_file());
        at(Style::Screen)
            .plot_again(name, &data)
            .expect("drawn again");
        assert_eq!(
            fs::read_to_string(path(name, ".svg")).expect("a plot"),
            first
        );
        assert!(!path(name, ".pdf").exists() && !path(name, CAPTION).exists());
    }
    for wrong in ["", "{", "{}", "{\"figure\":{}}", "null"] {
        let error = at(PAPER)
            .plot_again("bars", wrong.as_bytes())
            .expect_err(wrong);
        assert!(format!("{error:#}").contains("no plot's data"), "{error:#}");
    }
}
