//! A plugin that hosts never name: its registration stands in a private module.
#![forbid(unsafe_code)]

mod registration {
    use dispatch_api::{Problems, SinkPlugin};

    pub static PLUGIN: SinkPlugin = SinkPlugin::new(
        "tiny",
        "refuses everything",
        || serde_json::json!({}),
        |_, _| {
            let mut problems = Problems::new();
            problems.add("", "a tiny plugin builds nothing");
            Err(problems)
        },
    );

    dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);
}
