// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a planted fault makes of a run.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Arc;
use std::thread::current;

/// The first line with which a run panics, or the assertion of the design that ended it; `None` if it ends well. Its
/// panics are not printed.
pub(crate) fn finding(run: impl FnOnce()) -> Option<String> {
    let (own, hook) = (current().id(), Arc::new(take_hook()));
    let others = Arc::clone(&hook);
    set_hook(Box::new(move |panic| {
        if current().id() != own {
            others(panic);
        }
    }));
    let ended = catch_unwind(AssertUnwindSafe(run));
    set_hook(Box::new(move |panic| hook(panic)));
    let error = ended.err()?;
    let text = error.downcast_ref::<String>().cloned().or_else(|| error.downcast_ref::<&str>().map(|&s| s.to_owned()));
    let text = text.unwrap_or_default();
    let own = text.find("Assertion failed").map_or(&text[..], |at| &text[at..]);
    Some(own.split(['\n', '\\']).next().unwrap_or_default().to_owned())
}
