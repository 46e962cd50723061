//! A node's door: passes bytes both ways until it is shut, and then lets everything hang.
//!
//! What a stopped process looks like from outside: connections are taken and stay open, and nothing is
//! read or written any more, on old ones and new ones alike.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Door {
    pub address: SocketAddr,
    shut: watch::Sender<bool>,
}

impl Door {
    pub async fn before(node: SocketAddr) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (shut, is_shut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, node, is_shut.clone()));
            }
        });
        Door { address, shut }
    }

    pub fn shut(&self) {
        self.shut.send_replace(true);
    }
}

async fn pass(mut client: TcpStream, node: SocketAddr, mut is_shut: watch::Receiver<bool>) {
    let passing = async {
        if let Ok(mut node) = TcpStream::connect(node).await {
            let _ = copy_bidirectional(&mut client, &mut node).await;
        }
    };
    tokio::select! {
        biased;
        _ = is_shut.wait_for(|shut| *shut) => {}
        () = passing => return,
    }
    // Keeps the connection for as long as the run lasts.
    std::future::pending::<()>().await;
}
