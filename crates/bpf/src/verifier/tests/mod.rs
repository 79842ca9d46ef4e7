//! Programs that are safe and programs that are not.
