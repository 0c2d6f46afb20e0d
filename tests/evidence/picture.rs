//! The pictures, as SVG. On a white ground of their own, so that they can be read on a dark page too; in the colours of
//! Okabe and Ito, which people with any colour vision can tell apart, and never by colour alone.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::limiter::Limiter;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 1000;
const INK: RGBColor = RGBColor(34, 34, 34);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const FONT: &str = "sans-serif";

pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub const SKY: RGBColor = RGBColor(86, 180, 233);

pub fn colour(limiter: Limiter) -> RGBColor {
    match limiter {
        Limiter::FixedWindow => VERMILION,
        Limiter::Log => GREEN,
        Limiter::Counter => BLUE,
        Limiter::Bucket => PURPLE,
        Limiter::SmallBucket => ORANGE,
    }
}

/// Length of dash and gap of a limiter's line; no gap is a solid line.
fn dash(limiter: Limiter) -> (u32, u32) {
    match limiter {
        Limiter::FixedWindow => (12, 0),
        Limiter::Log => (14, 5),
        Limiter::Counter => (12, 0),
        Limiter::Bucket => (6, 4),
        Limiter::SmallBucket => (2, 3),
    }
}

/// A line of a chart.
pub struct Line {
    pub limiter: Limiter,
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

/// A scale: from, to, and what stands beside it, with its unit.
pub struct Axis<'a> {
    pub from: f64,
    pub to: f64,
    pub title: &'a str,
}

/// A straight line across the chart, with a label.
pub enum Mark<'a> {
    Across(f64, &'a str),
    Upright(f64, &'a str),
}

/// Lines over two linear scales.
pub fn lines(title: &str, x: &Axis<'_>, y: &Axis<'_>, lines: &[Line], marks: &[Mark<'_>]) -> String {
    draw(title, 460, &legend_of(lines), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(62)
            .build_cartesian_2d(x.from..x.to, y.from..y.to)
            .expect("a chart");
        let text = (FONT, 16).into_font().color(&INK);
        chart
            .configure_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style(text.clone())
            .axis_desc_style((FONT, 17).into_font().color(&INK))
            .x_desc(x.title)
            .y_desc(y.title)
            .x_labels(13)
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()
            .expect("a mesh");
        let beside = (x.to - x.from) * 0.006;
        for mark in marks {
            let (from, to, label, at) = match *mark {
                Mark::Across(at, label) => ((x.from, at), (x.to, at), label, (x.from + beside, at)),
                Mark::Upright(at, label) => ((at, y.from), (at, y.to), label, (at + beside, y.to)),
            };
            let pos = match mark {
                Mark::Across(..) => Pos::new(HPos::Left, VPos::Bottom),
                Mark::Upright(..) => Pos::new(HPos::Left, VPos::Top),
            };
            let style = text.clone().pos(pos);
            chart.draw_series(DashedLineSeries::new([from, to], 3, 4, INK.stroke_width(1))).expect("a mark");
            chart.draw_series([Text::new(label.to_owned(), at, style)]).expect("a label");
        }
        for line in lines {
            let style = colour(line.limiter).stroke_width(3);
            let points = line.points.iter().copied();
            match dash(line.limiter) {
                (_, 0) => chart.draw_series(LineSeries::new(points, style)).expect("a line"),
                (size, gap) => chart.draw_series(DashedLineSeries::new(points, size, gap, style)).expect("a line"),
            };
        }
    })
}

/// Lines over two logarithmic scales, with a point at each value.
pub fn log_lines(title: &str, x: &Axis<'_>, y: &Axis<'_>, lines: &[Line]) -> String {
    draw(title, 460, &legend_of(lines), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(30)
            .x_label_area_size(48)
            .y_label_area_size(92)
            .build_cartesian_2d((x.from..x.to).log_scale(), (y.from..y.to).log_scale())
            .expect("a chart");
        chart
            .configure_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 16).into_font().color(&INK))
            .axis_desc_style((FONT, 17).into_font().color(&INK))
            .x_desc(x.title)
            .y_desc(y.title)
            .x_label_formatter(&|value| grouped(*value))
            .y_label_formatter(&|value| grouped(*value))
            .draw()
            .expect("a mesh");
        for line in lines {
            let colour = colour(line.limiter);
            let points = || line.points.iter().copied();
            let style = colour.stroke_width(3);
            match dash(line.limiter) {
                (_, 0) => chart.draw_series(LineSeries::new(points(), style)).expect("a line"),
                (size, gap) => chart.draw_series(DashedLineSeries::new(points(), size, gap, style)).expect("a line"),
            };
            match line.limiter {
                Limiter::FixedWindow => {
                    chart.draw_series(points().map(|at| TriangleMarker::new(at, 11, colour.filled()))).expect("points");
                }
                Limiter::Counter => {
                    chart.draw_series(points().map(|at| Cross::new(at, 8, colour.stroke_width(2)))).expect("points");
                }
                _ => {
                    chart.draw_series(points().map(|at| Circle::new(at, 4, colour.filled()))).expect("points");
                }
            }
        }
    })
}

/// What stands above a chart: a sample, and whose it is.
struct Entry {
    text: String,
    colour: RGBColor,
    dash: (u32, u32),
}

/// Width of a sample.
const SAMPLE: i32 = 26;
/// The sample of a bar.
const BLOCK: (u32, u32) = (14, 100);

/// Bars of one colour, one for each category.
pub struct Bars<'a> {
    pub label: &'a str,
    pub colour: RGBColor,
    pub values: Vec<f64>,
}

/// Groups of bars, one group for each category, each bar with its value on top.
pub fn bars(title: &str, y: &Axis<'_>, categories: &[String], series: &[Bars<'_>], across: Option<f64>) -> String {
    let legend: Vec<_> =
        series.iter().map(|bars| Entry { text: bars.label.to_owned(), colour: bars.colour, dash: BLOCK }).collect();
    draw(title, 460, &legend, |area| {
        let groups = categories.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..groups, y.from..y.to)
            .expect("a chart");
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 16).into_font().color(&INK))
            .axis_desc_style((FONT, 17).into_font().color(&INK))
            .y_desc(y.title)
            .x_labels(0)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()
            .expect("a mesh");
        let width = 0.86 / series.len() as f64;
        for (number, bars) in series.iter().enumerate() {
            for (group, value) in bars.values.iter().enumerate() {
                if value.is_nan() {
                    continue;
                }
                let left = group as f64 + 0.07 + number as f64 * width;
                let right = left + width * 0.92;
                let bar = Rectangle::new([(left, y.from), (right, *value)], bars.colour.filled());
                let frame = Rectangle::new([(left, y.from), (right, *value)], INK.stroke_width(1));
                chart.draw_series([bar, frame]).expect("a bar");
                let (at_x, at_y) = chart.plotting_area().map_coordinate(&((left + right) / 2.0, *value));
                let style = label(if series.len() > 3 { 10 } else { 13 }).pos(Pos::new(HPos::Center, VPos::Bottom));
                area_text(area, &short(*value), (at_x, at_y - 2), &style);
            }
        }
        if let Some(at) = across {
            let line = [(0.0, at), (groups, at)];
            chart.draw_series(DashedLineSeries::new(line, 6, 4, INK.stroke_width(2))).expect("a mark");
        }
        for (group, category) in categories.iter().enumerate() {
            let (at_x, at_y) = chart.plotting_area().map_coordinate(&(group as f64 + 0.5, y.from));
            for (number, line) in category.split('\n').enumerate() {
                let style = label(16).pos(Pos::new(HPos::Center, VPos::Top));
                area_text(area, line, (at_x, at_y + 8 + 16 * number as i32), &style);
            }
        }
    })
}

/// One row of upright ticks for each limiter.
pub fn ticks(title: &str, x: &Axis<'_>, rows: &[(Limiter, &[f64])], marks: &[f64]) -> String {
    draw(title, 420, &[], |area| {
        let count = rows.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(20)
            .build_cartesian_2d(x.from..x.to, 0.0..count)
            .expect("a chart");
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 16).into_font().color(&INK))
            .axis_desc_style((FONT, 17).into_font().color(&INK))
            .x_desc(x.title)
            .y_labels(0)
            .x_labels(9)
            .x_label_formatter(&|value| format!("{value:.0}"))
            .draw()
            .expect("a mesh");
        for mark in marks {
            let line = [(*mark, 0.0), (*mark, count)];
            chart.draw_series(DashedLineSeries::new(line, 3, 4, INK.stroke_width(1))).expect("a mark");
        }
        for (number, (limiter, times)) in rows.iter().enumerate() {
            let bottom = count - 1.0 - number as f64 + 0.12;
            let style = colour(*limiter).stroke_width(2);
            let tick = |at: &f64| PathElement::new([(*at, bottom), (*at, bottom + 0.5)], style);
            chart.draw_series(times.iter().map(tick)).expect("ticks");
            let (at_x, at_y) = chart.plotting_area().map_coordinate(&(x.from, bottom + 0.52));
            let style = label(16).pos(Pos::new(HPos::Left, VPos::Bottom));
            area_text(area, limiter.label(), (at_x + 6, at_y), &style);
        }
    })
}

/// A white ground, the title, the legend, and below them the chart.
fn draw(title: &str, height: u32, legend: &[Entry], chart: impl FnOnce(&Area<'_>)) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).expect("a ground");
        area_text(&root, title, (16, 12), &(FONT, 21).into_font().color(&INK));
        let mut at = 16;
        let top = if legend.is_empty() { 36 } else { 62 };
        for Entry { text, colour, dash } in legend {
            let (length, gap) = *dash;
            let width = if *dash == BLOCK { length as i32 } else { SAMPLE };
            for from in (0..width).step_by((length + gap) as usize) {
                let to = (from + length as i32).min(width);
                let height = if *dash == BLOCK { 6 } else { 2 };
                let sample = Rectangle::new([(at + from, 49 - height), (at + to, 49 + height)], colour.filled());
                root.draw(&sample).expect("a legend");
            }
            area_text(&root, text, (at + width + 6, 41), &label(16));
            at += width + 6 + 7 * text.chars().count() as i32 + 22;
        }
        chart(&root.margin(top, 0, 0, 0));
        root.present().expect("a picture");
    }
    svg
}

fn legend_of(lines: &[Line]) -> Vec<Entry> {
    let entry = |line: &Line| Entry {
        text: line.label.clone(),
        colour: colour(line.limiter),
        dash: match dash(line.limiter) {
            (_, 0) => (SAMPLE as u32, 0),
            dash => dash,
        },
    };
    lines.iter().map(entry).collect()
}

fn label(size: i32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// Text at a point of the area's own pixels.
fn area_text(area: &Area<'_>, text: &str, at: (i32, i32), style: &TextStyle<'_>) {
    // Coordinates that a chart maps are those of the whole picture.
    let (x, y) = area.get_base_pixel();
    let at = (at.0 - x, at.1 - y);
    area.draw_text(text, style, at).expect("text");
}

/// Enough digits to compare.
fn short(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.1 {
        format!("{value:.2}")
    } else if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `1 000 000`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
