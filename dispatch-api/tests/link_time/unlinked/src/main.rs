//! A host that depends on the plugin and never mentions it.

fn main() {
    let registry = dispatch_api::Registry::linked().expect("no plugin has no duplicate");
    let error = registry
        .build("tiny", &Default::default(), &dispatch_api::HostServices::new())
        .expect_err("nothing is linked");
    println!("{error}");
}
