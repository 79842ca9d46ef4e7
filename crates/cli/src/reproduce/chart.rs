// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as bar charts in SVG, as the papers draw them, and their values as CSV.

use std::fmt::Write;
use std::path::Path;

use crate::failure::Failure;

const WIDTH: f64 = 760.0;
const PANEL_HEIGHT: f64 = 240.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 34.0;
const COLOURS: [&str; 8] = ["#1b6ca8", "#d1495b", "#edae49", "#5a9367", "#7a5195", "#444444", "#8d6a3f", "#8aa0b4"];

/// A chart: for each group a bar of each series.
#[derive(Debug, Default)]
pub(super) struct Panel {
    /// Title, with the unit of the values.
    pub(super) title: String,
    pub(super) groups: Vec<String>,
    /// Names, and a value for each group.
    pub(super) series: Vec<(String, Vec<Option<f64>>)>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The least number of the form 1, 2 or 5 times a power of ten that is not below a quarter of the greatest value.
fn step(most: f64) -> f64 {
    let decade = 10f64.powf((most / 4.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|step| *step >= most / 4.0).unwrap_or(decade)
}

impl Panel {
    fn render(&self, svg: &mut String, at: f64) {
        let values = self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        let most = values.copied().fold(0.0, f64::max).max(1e-9);
        let (bottom, right) = (at + PANEL_HEIGHT - BOTTOM, WIDTH - RIGHT);
        let step = step(most);
        let lines = (most / step).ceil();
        let y = |value: f64| bottom - value / (lines * step) * (PANEL_HEIGHT - TOP - BOTTOM);
        let mut line = |text: std::fmt::Arguments<'_>| svg.write_fmt(format_args!("{text}\n")).unwrap_or_default();
        line(format_args!("<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", at + 20.0, escaped(&self.title)));
        for number in 0..=lines as u32 {
            let value = f64::from(number) * step;
            let label = format!("{value:.3}");
            let label = label.trim_end_matches('0').trim_end_matches('.');
            line(format_args!("<path d=\"M{LEFT} {0:.1}H{right}\" stroke=\"#dddddd\"/>", y(value)));
            let (x, y) = (LEFT - 6.0, y(value) + 4.0);
            line(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>"));
        }
        let group_width = (right - LEFT) / self.groups.len().max(1) as f64;
        let bar_width = group_width * 0.8 / self.series.len().max(1) as f64;
        for (number, group) in self.groups.iter().enumerate() {
            let start = LEFT + (number as f64 + 0.1) * group_width;
            let (x, y_label) = (start + group_width * 0.4, bottom + 18.0);
            line(format_args!(
                "<text x=\"{x:.1}\" y=\"{y_label:.1}\" text-anchor=\"middle\">{}</text>",
                escaped(group)
            ));
            for (index, (_, values)) in self.series.iter().enumerate() {
                let Some(value) = values.get(number).copied().flatten() else { continue };
                let colour = COLOURS[index % COLOURS.len()];
                let (x, top) = (start + index as f64 * bar_width, y(value));
                line(format_args!(
                    "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                    bar_width * 0.92,
                    bottom - top
                ));
            }
        }
        for (index, (name, _)) in self.series.iter().enumerate() {
            let (colour, y) = (COLOURS[index % COLOURS.len()], at + TOP + 16.0 * index as f64 + 8.0);
            line(format_args!(
                "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>",
                right + 12.0,
                escaped(name)
            ));
        }
    }
}

/// A field of CSV [RFC 4180].
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// The values of panels as CSV, a line each.
fn csv(panels: &[Panel]) -> String {
    let mut text = "panel,group,series,value\n".to_owned();
    for Panel { title, groups, series } in panels {
        for (number, group) in groups.iter().enumerate() {
            for (name, values) in series {
                let Some(value) = values.get(number).copied().flatten() else { continue };
                text.push_str(&format!("{},{},{},{value}\n", field(title), field(group), field(name)));
            }
        }
    }
    text
}

/// Writes a figure: as CSV if the extension of the file is `csv`, else as SVG.
pub(super) fn write(path: &Path, title: &str, panels: &[Panel]) -> Result<(), Failure> {
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let text = if is_csv { csv(panels) } else { render(title, panels) };
    std::fs::write(path, text).map_err(|e| Failure::file("written", path, &e))
}

/// Draws panels, one below the other.
fn render(title: &str, panels: &[Panel]) -> String {
    let height = 30.0 + PANEL_HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"20\" \
         font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    for (number, panel) in panels.iter().enumerate() {
        panel.render(&mut svg, 30.0 + PANEL_HEIGHT * number as f64);
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_bar_of_its_height() {
        let panel = Panel {
            title: "a < b".to_owned(),
            groups: vec!["1".to_owned(), "2".to_owned()],
            series: vec![("x".to_owned(), vec![Some(4.0), None]), ("y".to_owned(), vec![Some(2.0), Some(1.0)])],
        };
        let svg = render("title", &[panel]);
        let heights: Vec<&str> = svg.split("height=\"").skip(2).filter_map(|text| text.split('"').next()).collect();
        // The greatest value fills the panel: 240 without the room for labels.
        assert_eq!(heights, ["172.0", "86.0", "43.0"], "{svg}");
        assert!(svg.contains("a &lt; b"));
    }

    #[test]
    fn csv_has_a_line_for_each_value() {
        let panel = Panel {
            title: "loss, in \"%\"".to_owned(),
            groups: vec!["1".to_owned(), "2".to_owned()],
            series: vec![("x".to_owned(), vec![Some(0.5), None]), ("y".to_owned(), vec![Some(2.0), Some(1.0)])],
        };
        let quoted = "\"loss, in \"\"%\"\"\"";
        let lines = format!("panel,group,series,value\n{quoted},1,x,0.5\n{quoted},1,y,2\n{quoted},2,y,1\n");
        assert_eq!(csv(&[panel]), lines);
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([4.0, 7.0, 0.9, 120.0].map(step), [1.0, 2.0, 0.5, 50.0]);
    }
}
