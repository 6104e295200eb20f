//! What plots are made of: text, lines, markers, whiskers.

use plotters::prelude::*;

use crate::{Area, Drawn, INK, Look, Value};

/// From values to pixels of the whole figure.
pub(crate) type Map = Box<dyn Fn(f64, f64) -> (i32, i32)>;

/// Text of so many pixels.
pub(crate) fn font(size: i32, color: RGBColor) -> TextStyle<'static> {
    // The backend writes font-size as this divided by 1.24.
    let family = FontFamily::Name("DejaVu Sans, Verdana, sans-serif");
    (family, f64::from(size) * 1.24).into_font().color(&color)
}

/// About how wide a text is.
pub(crate) fn width_of(text: &str, size: i32) -> i32 {
    let count = i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    count.saturating_mul(size) * 61 / 100
}

/// The range of a value.
pub(crate) fn whisker(root: &Area<'_>, map: &Map, value: &Value, x: i32, half: i32) -> Drawn {
    if value.low >= value.high {
        return Ok(());
    }
    let (low, high) = (map(0.0, value.low).1, map(0.0, value.high).1);
    for path in [
        [(x, low), (x, high)],
        [(x - half, low), (x + half, low)],
        [(x - half, high), (x + half, high)],
    ] {
        root.draw(&PathElement::new(path.to_vec(), INK.stroke_width(1)))?;
    }
    Ok(())
}

pub(crate) fn line(root: &Area<'_>, look: &Look, points: &[(i32, i32)]) -> Drawn {
    let style = look.color.stroke_width(2);
    if !look.dashed {
        if points.len() > 1 {
            root.draw(&PathElement::new(points.to_vec(), style))?;
        }
        return Ok(());
    }
    for pair in points.windows(2) {
        let [(x0, y0), (x1, y1)] = pair else { continue };
        let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
        let dashes = ((dx.hypot(dy) / 10.0).round() as i32).max(1);
        let at = |part: f64| {
            (
                x0 + (dx * part).round() as i32,
                y0 + (dy * part).round() as i32,
            )
        };
        for dash in 0..dashes {
            let start = f64::from(dash) / f64::from(dashes);
            let end = start + 0.6 / f64::from(dashes);
            root.draw(&PathElement::new(vec![at(start), at(end)], style))?;
        }
    }
    Ok(())
}

pub(crate) fn mark(root: &Area<'_>, look: &Look, at: (i32, i32)) -> Drawn {
    let style = look.color.filled();
    if look.dashed {
        return Ok(());
    }
    let (x, y) = at;
    match look.marker % 4 {
        0 => root.draw(&Circle::new(at, 5, style))?,
        1 => root.draw(&Rectangle::new([(x - 5, y - 5), (x + 5, y + 5)], style))?,
        2 => root.draw(&TriangleMarker::new(at, 6, style))?,
        _ => {
            let corners = vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
            root.draw(&Polygon::new(corners, style))?;
        }
    }
    Ok(())
}

/// A number beside an axis.
pub(crate) fn tick(number: f64) -> String {
    // Steps of an axis are 1, 2 or 5 of something, so nothing is lost.
    let rounded = (number * 1e6).round() / 1e6;
    rounded.to_string()
}

/// A number on a bar.
pub(crate) fn number_of(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
