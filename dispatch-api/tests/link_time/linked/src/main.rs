//! A host that links the plugin.
use plugin as _;

fn main() {
    let registry = dispatch_api::Registry::linked().expect("one plugin has no duplicate");
    for plugin in registry.plugins() {
        println!("{}", plugin.kind);
    }
}
