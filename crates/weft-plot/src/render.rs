//! SVG as PNG and PDF, without a program or a font of the machine.

use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, anyhow};
use krilla::geom::Size;
use krilla::page::PageSettings;
use krilla_svg::{SurfaceExt as _, SvgSettings};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Source};
use resvg::usvg::{Options, Tree};

use crate::style::Style;
use crate::text::{FAMILY, FONT};

/// The most pixels of a PNG: a figure that is larger has fewer for each unit.
const PIXELS: f64 = 40e6;
/// Points of PDF in a pixel of CSS.
const POINTS: f32 = 72.0 / 96.0;

/// One font, whatever the machine has.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_source(Source::Binary(Arc::new(FONT)));
    Arc::new(fonts)
});

fn tree(svg: &str) -> Result<Tree> {
    let options = Options {
        font_family: FAMILY.to_owned(),
        fontdb: Arc::clone(&FONTS),
        ..Options::default()
    };
    Tree::from_str(svg, &options).context("reading the SVG")
}

/// A PNG of an SVG; one for paper knows its size in print.
pub(crate) fn png(svg: &str, style: Style) -> Result<Vec<u8>> {
    let tree = tree(svg)?;
    let (width, height) = (
        f64::from(tree.size().width()),
        f64::from(tree.size().height()),
    );
    let zoom = style.zoom().min((PIXELS / (width * height)).sqrt());
    let pixels = |length: f64| (length * zoom).ceil().max(1.0) as u32;
    let (across, down) = (pixels(width), pixels(height));
    let mut picture = Pixmap::new(across, down)
        .with_context(|| format!("a picture of {across} by {down} pixels has no room"))?;
    picture.fill(Color::WHITE);
    let zoom = zoom as f32;
    resvg::render(
        &tree,
        Transform::from_scale(zoom, zoom),
        &mut picture.as_mut(),
    );
    // It is opaque, as its ground is.
    let colors: Vec<u8> = picture
        .pixels()
        .iter()
        .flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()])
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, across, down);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_pixel_dims(
        style
            .pixels_per_metre()
            .map(|density| png::PixelDimensions {
                xppu: density,
                yppu: density,
                unit: png::Unit::Meter,
            }),
    );
    let mut writer = encoder.write_header().context("writing the PNG's head")?;
    writer
        .write_image_data(&colors)
        .context("writing the PNG's pixels")?;
    writer.finish().context("writing the PNG's end")?;
    Ok(bytes)
}

/// A PDF of an SVG, of the same size, with its text as text.
pub(crate) fn pdf(svg: &str) -> Result<Vec<u8>> {
    let tree = tree(svg)?;
    let (width, height) = (tree.size().width() * POINTS, tree.size().height() * POINTS);
    let size = Size::from_wh(width, height).context("a page without size")?;
    let mut document = krilla::Document::new();
    let mut page = document.start_page_with(PageSettings::new(size));
    let mut surface = page.surface();
    surface
        .draw_svg(&tree, size, SvgSettings::default())
        .context("drawing the SVG on a page")?;
    surface.finish();
    page.finish();
    document
        .finish()
        .map_err(|error| anyhow!("writing the PDF: {error:?}"))
}
