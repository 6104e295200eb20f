//! The records of users, which hosts of a simulation write.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_model::traffic::Record;

/// The records of a user, in the folder of its host.
pub const RECORDS: &str = "records.jsonl";
/// The longest file of records that is read.
const MAX_BYTES: u64 = 1 << 30;

/// A user, whose records the read form expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedUser {
    /// The client's host.
    pub host: String,
    /// As records name it.
    pub model: String,
}

/// The records of a user, and what is wrong with them.
pub fn records_of(hosts: &Path, user: &PlannedUser) -> (Option<Vec<Record>>, Option<String>) {
    let path = hosts.join(&user.host).join(RECORDS);
    let shown = path.display();
    let absent = |why: String| (None, Some(why));
    let text = match fs::metadata(&path) {
        Ok(file) if file.len() > MAX_BYTES => {
            return absent(format!(
                "{shown} has {} bytes: these are no records",
                file.len()
            ));
        }
        Ok(_) => fs::read_to_string(&path),
        Err(error) => Err(error),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return absent(format!(
                "{shown} is missing: the simulation did not come to its end, or the user failed (shadow.log and the \
                 files *.stderr beside it have the reason)"
            ));
        }
        Err(error) => return absent(format!("{shown} cannot be read: {error}")),
    };
    let mut records = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        match serde_json::from_str::<Record>(line) {
            Ok(record) if record.client == user.host && record.model == user.model => {
                records.push(record);
            }
            Ok(record) => {
                let problem = format!(
                    "{shown}:{number}: a stream of {} ({}), and the plan has {} ({}) there",
                    record.client, record.model, user.host, user.model
                );
                return (Some(records), Some(problem));
            }
            Err(error) => {
                let problem =
                    format!("{shown}:{number} is no record, and what follows is left out: {error}");
                return (Some(records), Some(problem));
            }
        }
    }
    (Some(records), None)
}
