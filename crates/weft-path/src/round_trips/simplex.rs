//! The minimum of a function of three numbers without derivatives (Nelder and Mead 1965).

/// Most rounds; about sixty are enough for these fits.
const ROUNDS: usize = 400;
/// The function's values differ by no more than this part of them: it is found.
const CLOSE: f64 = 1e-9;

type Point = [f64; 3];

/// Where the function is least near `start`, as far as it is found in a bounded number of steps. `steps` is how far to look first,
/// for each number. Where the function is infinite, nothing is looked for.
pub(super) fn minimum(start: Point, steps: Point, function: impl Fn(&Point) -> f64) -> Point {
    let at = |point: Point| (function(&point), point);
    let [a, b, c] = start;
    let [x, y, z] = steps;
    let mut corners = [
        at(start),
        at([a + x, b, c]),
        at([a, b + y, c]),
        at([a, b, c + z]),
    ];
    for _ in 0..ROUNDS {
        corners.sort_by(|one, other| one.0.total_cmp(&other.0));
        let [best, second, third, worst] = corners;
        if worst.0 - best.0 <= CLOSE * best.0.abs() {
            break;
        }
        let middle = mix(&best.1, &second.1, &third.1);
        let reflected = at(along(&middle, &worst.1, -1.0));
        let next = if reflected.0 < best.0 {
            let further = at(along(&middle, &worst.1, -2.0));
            if further.0 < reflected.0 {
                further
            } else {
                reflected
            }
        } else if reflected.0 < third.0 {
            reflected
        } else {
            let nearer = if reflected.0 < worst.0 { -0.5 } else { 0.5 };
            at(along(&middle, &worst.1, nearer))
        };
        if next.0 < worst.0.min(reflected.0.max(third.0)) || next.0 < third.0 {
            corners = [best, second, third, next];
        } else {
            let toward = |corner: &(f64, Point)| at(along(&best.1, &corner.1, 0.5));
            corners = [best, toward(&second), toward(&third), toward(&worst)];
        }
    }
    let least = corners
        .iter()
        .min_by(|one, other| one.0.total_cmp(&other.0));
    least.map_or(start, |(_, point)| *point)
}

fn mix(a: &Point, b: &Point, c: &Point) -> Point {
    let [a0, a1, a2] = a;
    let [b0, b1, b2] = b;
    let [c0, c1, c2] = c;
    [
        (a0 + b0 + c0) / 3.0,
        (a1 + b1 + c1) / 3.0,
        (a2 + b2 + c2) / 3.0,
    ]
}

/// From one point toward another, or away from it.
fn along(from: &Point, to: &Point, part: f64) -> Point {
    let [a0, a1, a2] = from;
    let [b0, b1, b2] = to;
    [
        a0 + (b0 - a0) * part,
        a1 + (b1 - a1) * part,
        a2 + (b2 - a2) * part,
    ]
}
