//! `dispatcher demo`: the whole way, on embedded parts.

use std::io;

use dispatch_api::{HostServices, Message, Registry};
use sink_testkit::sqs::SqsServer;
use tokio::io::BufReader;

use crate::config::Config;
use crate::input::Input;
use crate::run::{Exit, could_not_start};
use crate::send::{Output, send};
use crate::sqs::make_queue;
use crate::stop::Stop;
use crate::terminal::print;

const CONFIG: &str = include_str!("../demo/demo.toml");
const HOOKS: &str = include_str!("../demo/hooks.ndjson");
const QUEUES: [&str; 3] = ["acme-hooks", "globex-hooks", "initech-hooks.fifo"];

/// One hook of the demo is for a tenant whose queue does not exist.
const DEAD_LETTERS: u64 = 1;

pub(crate) async fn run(registry: &Registry) -> Exit {
    match deliver_samples(registry).await {
        Ok(shown) => print(&shown),
        Err(problem) => could_not_start(&problem),
    }
}

async fn deliver_samples(registry: &Registry) -> Result<String, String> {
    let server = SqsServer::start()
        .await
        .map_err(|error| format!("cannot start the embedded server: {error}"))?;
    for queue in QUEUES {
        make_queue(&server, queue).await?;
    }
    let mut text = format!("embedded SQS at {}, three queues\n", server.endpoint());

    let endpoint = server.endpoint();
    let services = HostServices::new().with_environment(move |name| match name {
        "DEMO_ENDPOINT" => Some(endpoint.clone()),
        _ => None,
    });
    let config = Config::parse(CONFIG, registry, services).map_err(|error| error.to_string())?;
    let input = Input::new(BufReader::new(io::Cursor::new(HOOKS)));
    let summary = send(config, input, Output::default(), Stop::new()).await;
    text.push_str(&format!("\n{summary}\n"));
    for queue in QUEUES {
        text.push_str(&format!("\nin {queue}:\n"));
        show(&server, queue, &mut text)?;
    }
    server.shutdown().await;
    if summary.dead_lettered() == DEAD_LETTERS && summary.bad_lines == 0 {
        Ok(text)
    } else {
        Err(format!("{text}\nnot every sample hook arrived"))
    }
}

/// Reads a queue back from the server itself, not through the sink.
fn show(server: &SqsServer, queue: &str, text: &mut String) -> Result<(), String> {
    let messages = server.messages(queue).map_err(|error| error.to_string())?;
    for stored in messages {
        let message = Message::decode(stored.body.as_bytes()).map_err(|error| error.to_string())?;
        let event = message
            .headers
            .iter()
            .find(|(name, _)| name == "x-github-event")
            .map_or("-", |(_, event)| event);
        text.push_str(&format!(
            "  {}  tenant {}  {event} ({} bytes)",
            message.id,
            message.tenant_id.as_deref().unwrap_or("-"),
            message.size
        ));
        if let Some(group) = &stored.group_id {
            text.push_str(&format!("  group {group}"));
        }
        text.push('\n');
    }
    Ok(())
}
