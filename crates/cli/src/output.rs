// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Printing: tables, JSON, diagnostics, progress.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use flowloom_report::text::table;
pub(crate) use flowloom_report::{counted, grouped};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Set once a write to stdout has failed with a broken pipe.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Writes to stdout. After its reader has closed it (`flowloom .. | head`), text is dropped: the command still does its
/// work and ends with its own exit code.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if is_stdout_closed() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            STDOUT_CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(error) => Err(Failure::Environment(format!("stdout cannot be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn is_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Prints indented JSON.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Renders a diagnostic with its source lines; in colour on a terminal.
pub(crate) fn render_diagnostic(diagnostic: &dyn Diagnostic) -> String {
    let is_terminal = std::io::stderr().is_terminal();
    let theme = if is_terminal { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut text = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, diagnostic);
    if rendered.is_err() {
        text = format!("{diagnostic}\n");
    }
    text
}

/// Diagnostics of a report as `check --json` prints warnings: code, message, position (line and column from 1), help.
pub(crate) fn diagnostics_json(report: &dyn Diagnostic) -> Value {
    let one = |diagnostic: &dyn Diagnostic| {
        let label = diagnostic.labels().and_then(|mut labels| labels.next());
        let position = label.zip(diagnostic.source_code()).and_then(|(label, source)| {
            let contents = source.read_span(label.inner(), 0, 0).ok()?;
            Some((contents.line() + 1, contents.column() + 1))
        });
        json!({
            "code": diagnostic.code().map(|code| code.to_string()),
            "message": diagnostic.to_string(),
            "position": position,
            "help": diagnostic.help().map(|help| help.to_string()),
        })
    };
    match report.related() {
        Some(related) => related.map(one).collect(),
        None => json!([one(report)]),
    }
}

/// Writes to stderr, to keep diagnostics apart from results. Ignores write errors; `eprint!` would panic.
pub(crate) fn print_error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Prints warnings on stderr.
pub(crate) fn warn(diagnostics: &[flowloom_efsm::diagnostic::Diagnostic]) {
    for diagnostic in diagnostics {
        print_error(&render_diagnostic(diagnostic));
    }
}

/// Prints a remark on stderr.
pub(crate) fn print_note(text: &str) {
    print_error(&format!("flowloom: {text}\n"));
}

/// Progress bar on stderr; hidden unless stderr is a terminal.
pub(crate) fn progress(what: &str, total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    let template = match total {
        Some(_) => "{msg} {bar:30} {human_pos}/{human_len} {per_sec} {eta}",
        None => "{msg} {spinner} {human_pos} {per_sec}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if std::io::stderr().is_terminal() {
        bar.enable_steady_tick(Duration::from_millis(200));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_message(what.to_owned());
    bar
}

/// Names for a message: `` `a`, `b` ``.
pub(crate) fn quoted(names: impl IntoIterator<Item = impl Display>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
