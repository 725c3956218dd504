//! A delivery is settled once.

use dispatch_api::Delivery;

async fn settle(delivery: Box<dyn Delivery>) {
    let _ = delivery.ack().await;
    let _ = delivery.retry().await;
}

fn main() {}
