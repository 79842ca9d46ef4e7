// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The screen of `flowloom top`: the report, cut to the size of the terminal, and keys.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flowloom_control::{Client, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::{Look, next, text};
use crate::failure::Failure;
use crate::run::Interrupted;

/// How the screen ended.
pub(super) enum End {
    /// By the user.
    Quit,
    /// The run has ended.
    Ended,
}

/// The longest time until a signal is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const KEYS: &str = "q quits, space pauses";
/// The alternate screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first place; the rest of a line; the rest of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";
/// Ctrl-C, which a raw terminal hands on as a byte.
const INTERRUPT: u8 = 3;

/// A terminal that hands on keys at once; dropping it restores its mode.
struct Screen {
    before: Termios,
}

impl Screen {
    fn enter() -> std::io::Result<Screen> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        let screen = Screen { before };
        put(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    fn size() -> (usize, usize) {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// The next key within a time.
    fn key(within: Duration) -> std::io::Result<Option<u8>> {
        let stdin = std::io::stdin();
        let timeout = Timespec::try_from(within).map_err(std::io::Error::other)?;
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            // Of a window that changes its size, or a signal that ends the screen.
            Err(rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(0) => Ok(None),
            Ok(_) => {
                let mut byte = [0];
                let count = rustix::io::read(stdin.as_fd(), &mut byte)?;
                // A terminal that is gone ends the screen.
                Ok(Some(if count == 0 { INTERRUPT } else { byte[0] }))
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Best effort: there is no other way to tell.
        let _ = put(LEAVE);
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn put(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Shows the run until the user quits or it ends.
pub(super) fn run(client: &mut Client, first: Report, interval: Duration) -> Result<End, Failure> {
    let failed = |error: std::io::Error| Failure::Environment(format!("the terminal cannot be used: {error}"));
    // Held first: a signal must not leave the terminal raw.
    let interrupted = Interrupted::hold()?;
    let _screen = Screen::enter().map_err(failed)?;
    let mut before = first;
    let mut shown = "the first interval is measured\n".to_owned();
    let mut is_paused = false;
    let mut due = Instant::now() + interval;
    loop {
        let keys = if is_paused { format!("PAUSED; {KEYS}") } else { KEYS.to_owned() };
        put(&page(&shown, &keys, Screen::size())).map_err(failed)?;
        let wait = due.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
        let key = Screen::key(wait).map_err(failed)?;
        if interrupted.flag().load(Ordering::Relaxed) {
            return Ok(End::Quit);
        }
        match key {
            Some(b'q' | INTERRUPT) => return Ok(End::Quit),
            Some(b' ') => is_paused = !is_paused,
            _ => {}
        }
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + interval;
        let Some(now) = next(client)? else { return Ok(End::Ended) };
        let look = Look::new(before, now);
        if !is_paused {
            shown = text::screen(&look);
        }
        before = look.now;
    }
}

/// The text of a screen: as many lines as there is room for, cut at the right edge, and the keys in the last line.
fn page(text: &str, keys: &str, (columns, lines): (usize, usize)) -> String {
    let mut page = HOME.to_owned();
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    for line in text.lines().take(lines - 1) {
        page.push_str(&format!("{}{CLEAR_LINE}\r\n", cut(line)));
    }
    page.push_str(&format!("{}{CLEAR_REST}", cut(keys)));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_fit_the_terminal() {
        let text = "a long line of a report\nsecond\nthird\n";
        assert_eq!(page(text, "keys", (6, 3)), "\x1b[Ha long\x1b[K\r\nsecond\x1b[K\r\nkeys\x1b[J");
        assert_eq!(page(text, "keys", (2, 1)), "\x1b[Hke\x1b[J");
        assert_eq!(page("one\n", "keys", (80, 24)), "\x1b[Hone\x1b[K\r\nkeys\x1b[J");
    }
}
