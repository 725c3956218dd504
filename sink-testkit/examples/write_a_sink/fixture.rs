use std::fs::{self, File};

use async_trait::async_trait;
use dispatch_api::{Guarantees, SinkPlugin};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Adapter, Clock, Destination, FixtureError, Profile, SinkFixture, StoredMessage,
};
use tempfile::TempDir;

/// The journal sink, for the suite.
pub(crate) struct Journal;

#[async_trait]
impl Adapter for Journal {
    fn name(&self) -> &str {
        "sink-journal"
    }

    fn profiles(&self) -> Vec<Profile> {
        let mut profile = Profile::new("journal", Guarantees::new(true));
        // No socket is involved: time passes only when nothing else can happen.
        profile.clock = Clock::Paused;
        vec![profile]
    }

    async fn fixture(&self, _: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        Ok(Box::new(Files(TempDir::new()?)))
    }
}

/// A directory for one case; a destination is a file in it.
struct Files(TempDir);

impl Files {
    fn destination(&self, name: &str) -> Destination {
        Destination::new(self.0.path().join(name).display().to_string())
    }
}

#[async_trait]
impl SinkFixture for Files {
    fn plugin(&self) -> &'static SinkPlugin {
        &sink_journal::PLUGIN
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        let destination = self.destination(name);
        File::create(destination.name())?;
        Ok(destination)
    }

    fn missing(&self) -> Destination {
        self.destination("nobody-made-this")
    }

    fn options(&self, destination: &Destination) -> Value {
        json!({ "path": destination.name() })
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        let text = fs::read_to_string(destination.name()).unwrap_or_default();
        // A line without an end is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(stored).collect()
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        let files = fs::read_dir(self.0.path())?;
        files
            .map(|file| Ok(file?.path().display().to_string()))
            .collect()
    }
}

/// A line, read without the sink's code.
fn stored(line: &str) -> Result<StoredMessage, FixtureError> {
    let line: Value = serde_json::from_str(line)?;
    let body = line["body"]
        .as_str()
        .ok_or_else(|| FixtureError::new("no body"))?;
    let mut message = StoredMessage::new(body.to_owned());
    let attributes: Vec<(String, String)> = serde_json::from_value(line["attributes"].clone())?;
    for (name, value) in attributes {
        message.attributes.push((name, value.into()));
    }
    Ok(message)
}
