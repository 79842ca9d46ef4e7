//! Warnings about whole elements.

use crate::diagnostic::Sink;
use crate::model::Element;

pub(super) fn warn(_elements: &[Element], _sink: &mut Sink) {}
