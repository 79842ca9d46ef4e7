// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first difference that a planted fault causes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// The first line with which a run panics, or the assertion of the design that ended it; `None` if it ends well. Its
/// panics are not printed.
pub(crate) fn finding(run: impl FnOnce()) -> Option<String> {
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                print(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let ended = catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(false);
    let error = ended.err()?;
    let text = error.downcast_ref::<String>().cloned().or_else(|| error.downcast_ref::<&str>().map(|&s| s.to_owned()));
    let text = text.unwrap_or_default();
    let first = text.find("Assertion failed").map_or(&text[..], |at| &text[at..]);
    Some(first.split(['\n', '\\']).next().unwrap_or_default().to_owned())
}
