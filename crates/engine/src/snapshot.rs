//! The state an engine leaves behind, in the form of `bpftool map dump -j`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The contents of one map: key bytes to value bytes.
pub type MapState = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of all maps of a function, by map name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Map name to contents.
    pub maps: BTreeMap<String, MapState>,
}

/// A snapshot that cannot be read, or does not fit the maps it is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The text is not JSON.
    #[error("state is not JSON: {0}")]
    Json(String),
    /// The JSON has another form.
    #[error("state of map `{map}`: expected {expected}, found `{found}`")]
    Form {
        /// The map, or the empty string for the whole.
        map: String,
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The function has no such map.
    #[error("state names map `{map}`; the function has {known}")]
    UnknownMap {
        /// The map that was named.
        map: String,
        /// The maps that exist, in words.
        known: String,
    },
    /// A key or value has the wrong length.
    #[error("{part} is {found} bytes, map `{map}` expects {expected}")]
    Size {
        /// The map.
        map: String,
        /// `key` or `value`.
        part: &'static str,
        /// The length found.
        found: usize,
        /// The length the map has.
        expected: usize,
    },
    /// There are more entries than the map holds.
    #[error("state has {found} entries, map `{map}` holds {expected}")]
    TooMany {
        /// The map.
        map: String,
        /// Entries found.
        found: usize,
        /// Entries that fit.
        expected: usize,
    },
}

fn hex_list(bytes: &[u8]) -> Value {
    Value::Array(bytes.iter().map(|b| Value::String(format!("0x{b:02x}"))).collect())
}

fn parse_hex_list(map: &str, value: &Value) -> Result<Vec<u8>, SnapshotError> {
    let form = |found: &Value| SnapshotError::Form {
        map: map.to_owned(),
        expected: "a list of bytes such as [\"0x0a\",\"0xff\"]",
        found: found.to_string(),
    };
    value
        .as_array()
        .ok_or_else(|| form(value))?
        .iter()
        .map(|item| {
            let text = item.as_str().ok_or_else(|| form(item))?;
            let digits = text.strip_prefix("0x").ok_or_else(|| form(item))?;
            u8::from_str_radix(digits, 16).map_err(|_| form(item))
        })
        .collect()
}

impl Snapshot {
    /// Renders as JSON: an object that gives for each map the list that `bpftool map dump -j` prints for it.
    pub fn to_json(&self) -> String {
        let maps: serde_json::Map<String, Value> = self
            .maps
            .iter()
            .map(|(name, entries)| {
                let list = entries.iter().map(|(k, v)| json!({"key": hex_list(k), "value": hex_list(v)})).collect();
                (name.clone(), Value::Array(list))
            })
            .collect();
        Value::Object(maps).to_string()
    }

    /// Reads what [`Snapshot::to_json`] wrote.
    ///
    /// # Errors
    /// The text is no JSON or has another form; the error says where and what was expected.
    pub fn from_json(text: &str) -> Result<Snapshot, SnapshotError> {
        let root: Value = serde_json::from_str(text).map_err(|e| SnapshotError::Json(e.to_string()))?;
        let object = root.as_object().ok_or_else(|| SnapshotError::Form {
            map: String::new(),
            expected: "an object of maps",
            found: root.to_string(),
        })?;
        let mut snapshot = Snapshot::default();
        for (name, list) in object {
            let list = list.as_array().ok_or_else(|| SnapshotError::Form {
                map: name.clone(),
                expected: "a list of {\"key\", \"value\"}",
                found: list.to_string(),
            })?;
            let mut entries = MapState::new();
            for item in list {
                let key = parse_hex_list(name, &item["key"])?;
                if entries.insert(key, parse_hex_list(name, &item["value"])?).is_some() {
                    return Err(SnapshotError::Form {
                        map: name.clone(),
                        expected: "each key once",
                        found: item["key"].to_string(),
                    });
                }
            }
            snapshot.maps.insert(name.clone(), entries);
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_there_and_back() {
        let mut snapshot = Snapshot::default();
        snapshot.maps.entry("conn".into()).or_default().insert(vec![1, 255], vec![0, 16]);
        snapshot.maps.entry("empty".into()).or_default();
        let text = snapshot.to_json();
        assert_eq!(text, r#"{"conn":[{"key":["0x01","0xff"],"value":["0x00","0x10"]}],"empty":[]}"#);
        assert_eq!(Snapshot::from_json(&text), Ok(snapshot));
    }

    #[test]
    fn bad_json_says_where() {
        let error = Snapshot::from_json(r#"{"conn":[{"key":["7"],"value":[]}]}"#).expect_err("7 is not 0x07");
        assert_eq!(
            error.to_string(),
            "state of map `conn`: expected a list of bytes such as [\"0x0a\",\"0xff\"], found `\"7\"`"
        );
    }
}
