//! The texts that a source names. The compiler opens no file: who calls it says what a name stands for.

use std::collections::BTreeMap;

/// Where the texts come from that a source names, as in `set blocked = file("blocked.txt");`.
pub trait Files {
    /// The text of the file that the source calls `name`.
    ///
    /// # Errors
    /// Why there is none, in a few words.
    fn read(&self, name: &str) -> Result<String, String>;
}

/// No files at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("a source that stands alone has no files".to_owned())
    }
}

/// Texts in memory, by name.
impl Files for BTreeMap<String, String> {
    fn read(&self, name: &str) -> Result<String, String> {
        self.get(name).cloned().ok_or_else(|| "there is no such file".to_owned())
    }
}
