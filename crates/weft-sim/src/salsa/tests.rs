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
fn no_document_is_refused() {
    let refused = measure(&[], &SalsaOptions::default(), &mut |_, _| ());
    assert!(matches!(refused, Err(SalsaError::NoDocument)));
}
