//! Starting, finding, freezing and ending processes of the host.

pub mod ends;
pub mod freeze;
pub mod launch;
pub mod strays;
pub mod unconnected;
