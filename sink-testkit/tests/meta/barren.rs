//! Fixtures that have nothing: what a case looks for and does not find is no pass.

use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{HostServices, Problems, Sink, SinkPlugin};
use serde_json::{Value, json};
use sink_testkit::conformance::{
    Adapter, CaseReport, Destination, FaultScript, FixtureError, Profile, Rule, SeenRequest,
    SinkFixture, StoredMessage, Verdict, run_case,
};
use sink_testkit::reference::{PLUGIN, ReferenceAdapter};

use crate::subject::{case, own_case};

/// What the fixture, the profile or the plugin is without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    ErrorRows,
    RecordedRequests,
    Secrets,
    Proofs,
    Conflicts,
    UnreachableServers,
    Tables,
    Options,
    RequiredTexts,
}

/// The reference adapter, which is honest, in surroundings that are bare.
#[derive(Debug)]
struct Barren(Without);

#[async_trait]
impl Adapter for Barren {
    fn name(&self) -> &str {
        "sink-example"
    }

    fn profiles(&self) -> Vec<Profile> {
        let mut profile = ReferenceAdapter::profile("ordered-batched");
        if self.0 == Without::ErrorRows {
            profile.error_table.clear();
        }
        vec![profile]
    }

    async fn fixture(&self, profile: &Profile) -> Result<Box<dyn SinkFixture>, FixtureError> {
        let inner = ReferenceAdapter::honest().fixture(profile).await?;
        Ok(Box::new(Bare {
            inner,
            without: self.0,
        }))
    }
}

struct Bare {
    inner: Box<dyn SinkFixture>,
    without: Without,
}

fn schema_without(is_left_out: fn(&str, &Value) -> bool) -> Value {
    let mut schema = (PLUGIN.schema)();
    let options = schema["properties"].as_object_mut().unwrap();
    options.retain(|name, option| !is_left_out(name, option));
    schema
}

fn build(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    (PLUGIN.build)(options, services)
}

/// Builds of its own key and secret, and of a list in the place of a text.
fn build_of_a_list(options: &Value, services: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
    let mut options = options.clone();
    if let Some(Value::Array(names)) = options.get("destination") {
        let name = names[0].clone();
        options["destination"] = name;
        options["vault"] = true.into();
    }
    build(&options, services)
}

static FLAT: SinkPlugin = SinkPlugin::new(
    "reference",
    "one without a table",
    || schema_without(|name, _| name == "link"),
    build,
);
static WITHOUT_OPTIONS: SinkPlugin = SinkPlugin::new(
    "reference",
    "one whose schema is empty",
    || schema_without(|_, _| true),
    build,
);
static OF_A_LIST: SinkPlugin = SinkPlugin::new(
    "reference",
    "one whose destination is a list",
    PLUGIN.schema,
    build_of_a_list,
);

#[async_trait]
impl SinkFixture for Bare {
    fn plugin(&self) -> &'static SinkPlugin {
        match self.without {
            Without::Tables => &FLAT,
            Without::Options => &WITHOUT_OPTIONS,
            Without::RequiredTexts => &OF_A_LIST,
            _ => self.inner.plugin(),
        }
    }

    fn services(&self) -> HostServices {
        self.inner.services()
    }

    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.inner.create(name).await
    }

    fn missing(&self) -> Destination {
        self.inner.missing()
    }

    fn options(&self, destination: &Destination) -> Value {
        match self.without {
            Without::RequiredTexts => json!({ "destination": [destination.name()] }),
            _ => self.inner.options(destination),
        }
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        self.inner.stored(destination).await
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        self.inner.destinations().await
    }

    fn faults(&self) -> Option<&dyn FaultScript> {
        match self.without {
            Without::RecordedRequests => Some(self),
            _ => self.inner.faults(),
        }
    }

    fn other_credentials(&self, destination: &Destination) -> Option<(Value, String)> {
        self.inner.other_credentials(destination)
    }

    fn secrets(&self, destination: &Destination) -> Vec<String> {
        match self.without {
            Without::Secrets => Vec::new(),
            _ => self.inner.secrets(destination),
        }
    }

    fn proofs(&self) -> Vec<String> {
        match self.without {
            Without::Proofs => Vec::new(),
            _ => self.inner.proofs(),
        }
    }

    fn conflicts(&self, destination: &Destination) -> Vec<(Value, [&'static str; 2])> {
        match self.without {
            Without::Conflicts => Vec::new(),
            _ => self.inner.conflicts(destination),
        }
    }
}

/// Plays faults, and keeps no record.
impl FaultScript for Bare {
    fn add(&self, destination: &Destination, rule: Rule) {
        self.inner.faults().unwrap().add(destination, rule);
    }

    fn clear(&self) {
        self.inner.faults().unwrap().clear();
    }

    fn played(&self) -> u64 {
        self.inner.faults().unwrap().played()
    }

    fn requests(&self, _: &Destination) -> Vec<SeenRequest> {
        Vec::new()
    }
}

fn play(without: Without, id: &str) -> CaseReport {
    let adapter: Arc<dyn Adapter> = Arc::new(Barren(without));
    run_case(&adapter, &adapter.profiles()[0], &case(id), 1)
}

/// What the fixture or the profile is without, and the cases that look for it.
const OF_THE_FIXTURE: &[(Without, &[&str])] = &[
    (
        Without::ErrorRows,
        &[
            "error_class_table",
            "sink_recovers_after_every_error",
            "permanent_error_sends_once",
            "internal_retries_bounded_and_declared",
            "a_failed_delivery_is_not_repeated_later",
            "error_carries_context_without_payload",
            "error_codes_are_stable_words",
            "direct_errors_equal_batched_errors",
            "batch_partial_failure_per_caller",
            "batch_whole_request_failure_fails_every_member",
            "a_failed_head_is_answered_for_itself",
            "failures_are_counted_by_code",
            "a_batch_is_counted_by_its_messages",
            "an_outage_does_not_flood_the_log",
        ],
    ),
    (
        Without::RecordedRequests,
        &[
            "batch_never_exceeds_count_limit",
            "batch_never_exceeds_byte_limit",
            "batch_uses_the_whole_byte_limit",
            "batch_does_not_mix_credentials",
            "size_one_byte_over_refused_unsent",
            "body_without_its_claim_is_refused_unsent",
        ],
    ),
    (
        Without::Secrets,
        &[
            "a_wrong_secret_is_config_error",
            "secrets_are_not_in_debug",
            "secrets_are_not_in_errors",
            "secrets_are_not_in_errors_that_echo",
            "secrets_are_not_in_logs_or_metrics",
            "secrets_are_not_in_descriptions",
            "secrets_are_not_in_refused_options",
        ],
    ),
    (Without::Proofs, &["proofs_are_not_in_logs"]),
    (Without::Conflicts, &["config_conflicts_rejected_at_build"]),
    (
        Without::UnreachableServers,
        &["an_unreachable_server_is_transient_within_the_timeout"],
    ),
];

pub(crate) fn what_a_fixture_lacks_fails_and_is_no_kill() {
    for (without, cases) in OF_THE_FIXTURE {
        for id in *cases {
            let report = play(*without, id);
            let seen = (report.verdict, report.is_subjects);
            let wanted = (Verdict::Failed, false);
            assert_eq!(seen, wanted, "{without:?}, {id}: {}", report.reason);
        }
    }
    // A secret that nobody names is in no option.
    let report = play(Without::Secrets, "config_schema_marks_secrets");
    assert_eq!(report.verdict, Verdict::NotExercised, "{}", report.reason);
}

pub(crate) fn what_a_plugin_may_be_without_is_not_applicable() {
    for (without, id, reason) in [
        (
            Without::Tables,
            "config_unknown_key_in_a_table_named",
            "the schema has no table with keys of its own",
        ),
        (
            Without::RequiredTexts,
            "config_blank_is_not_a_value",
            "no option is a required text or a secret",
        ),
    ] {
        let report = play(without, id);
        let seen = (report.verdict, &*report.reason);
        assert_eq!(seen, (Verdict::NotApplicable, reason), "{id}");
        assert!(!report.is_subjects, "{id}");
    }
}

pub(crate) fn a_schema_without_options_passes_no_case_about_them() {
    for id in [
        "config_unknown_key_named",
        "config_unknown_key_in_a_table_named",
        "config_missing_required_named",
        "config_blank_is_not_a_value",
        "config_bounds_table",
        "config_wrong_type_named",
        "config_time_is_a_whole_number",
        "config_all_problems_at_once",
        "config_error_quotes_no_value",
        "config_hostile_key_shown_safely",
        "config_schema_matches_parser",
        "config_schema_describes_every_option",
        "config_schema_marks_secrets",
    ] {
        let report = play(Without::Options, id);
        let seen = (report.verdict, report.is_subjects, &*report.reason);
        let wanted = "the schema: expected options; observed none";
        assert_eq!(seen, (Verdict::Failed, true, wanted), "{id}");
    }
}

pub(crate) fn a_case_says_by_itself_that_it_does_not_apply() {
    use sink_testkit::conformance::{Failure, FailureKind};

    let about_nothing = own_case(|context| {
        Box::pin(async move {
            context.plan("what never happens");
            Err(Failure::not_applicable("there is nothing of the kind"))
        })
    });
    let adapter: Arc<dyn Adapter> = Arc::new(ReferenceAdapter::honest());
    let profile = ReferenceAdapter::profile("plain-single");
    let report = run_case(&adapter, &profile, &about_nothing, 1);
    let seen = (report.verdict, &*report.reason, report.is_subjects);
    let reason = "there is nothing of the kind";
    assert_eq!(seen, (Verdict::NotApplicable, reason, false));
    let kind = Failure::not_applicable(reason).kind();
    assert_eq!(kind, FailureKind::NotApplicable);
}
