//! Starting, finding, freezing and ending processes of the host.

pub mod ends;
pub mod freeze;
pub mod hold;
pub mod launch;
pub mod robust_lists;
pub mod strays;
pub mod unconnected;
