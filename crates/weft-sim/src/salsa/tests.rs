use super::*;
use crate::synth;

fn measured() -> Results {
    let documents = [Document {
        name: "synthetic".to_owned(),
        network: synth::network(300, 1).unwrap(),
    }];
    let options = SalsaOptions {
        repetitions: 2,
        ..SalsaOptions::default()
    };
    let mut last = 0.0;
    let results = measure(&documents, &options, &mut |part, _| {
        assert!((last..1.0).contains(&part));
        last = part;
    });
    results.unwrap()
}

/// A document without exit policies has no numbers in Figure 5.
#[test]
fn whiskers_are_over_the_documents_that_a_figure_has() {
    let mut results = measured();
    let others: Vec<Point> = results
        .of(What::Figure4)
        .map(|point| Point {
            document: "other".to_owned(),
            percent: point.percent.iter().map(|percent| percent + 1.0).collect(),
            ..point.clone()
        })
        .collect();
    results.points.extend(others);
    results.documents.push(("other".to_owned(), 300, 100));
    let plots = results.plots();
    let svg = |name: &str| {
        let (_, figure) = plots.iter().find(|(plot, _)| *plot == name).unwrap();
        figure.svg().unwrap()
    };
    let four = svg("figure4");
    assert!(
        four.contains("whiskers: least to most, n = 2 documents"),
        "{four}"
    );
    let five = svg("figure5");
    assert!(
        five.contains("whiskers: 95 % confidence interval, n = 2 repetitions"),
        "{five}"
    );
    assert!(four.contains("other") && !five.contains("synthetic, other"));
}

#[test]
fn all_figures_are_run_and_lie_beside_the_papers_values() {
    let results = measured();
    let names = [
        "figure4", "figure5", "figure6", "figure7", "figure8", "figure11",
    ];
    for (name, figure) in results.plots() {
        assert!(names.contains(&name));
        assert!(figure.svg().unwrap().contains("</svg>"));
    }
    assert_eq!(results.plots().len(), names.len());
    let comparisons = results.comparisons();
    for figure in [
        "figure4", "figure5", "figure6", "figure7", "figure8", "text", "table2",
    ] {
        assert!(
            comparisons.iter().any(|one| one.figure == figure),
            "{figure}"
        );
    }
    assert_eq!(results.left_out, Vec::<String>::new());
    // Fewer relays share more; more demand, too.
    let mean = |what, at| {
        results
            .over(what, "external, directed", at)
            .expect("it was run")
            .spread
            .mean
    };
    let four = |at| mean(What::Figure4, at);
    assert!(four(10.0) > four(100.0));
    let eight = |at| mean(What::Figure8, at);
    assert!(eight(290_000.0) > eight(96_000.0));
    // A line for each repetition, and the heading.
    let numbers: usize = results.points.iter().map(|point| point.percent.len()).sum();
    assert_eq!(results.points_csv().lines().count(), numbers + 1);
    assert_eq!(
        results.comparison_csv().lines().count(),
        comparisons.len() + 1
    );
}

#[test]
fn documents_that_differ_are_a_range_and_not_one_mean() {
    let mut results = Results::default();
    for (document, mean) in [("one", 3.25), ("other", 44.0)] {
        results.points.push(Point {
            what: What::Text,
            document: document.to_owned(),
            series: paper::SHARED_CIRCUITS[0].what.to_owned(),
            at: 0.0,
            percent: vec![mean; 100],
        });
    }
    let comparisons = results.comparisons();
    assert_eq!(comparisons.len(), 1);
    assert_eq!(comparisons[0].ours, (3.25, 44.0));
    assert_eq!(results.points[0].spread().map(|one| one.n), Some(100));
}

#[test]
fn no_document_is_refused() {
    let refused = measure(&[], &SalsaOptions::default(), &mut |_, _| ());
    assert!(matches!(refused, Err(SalsaError::NoDocument)));
}
