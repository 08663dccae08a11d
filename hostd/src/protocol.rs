//! What the server asks and hostd answers; `src/protocol/hostd.ts` is the schema. A request is one line of JSON: in a frame of `serve`
//! and of the relay, or as the argument of `perform`.

pub mod answer;
pub mod fields;
pub mod frame;
pub mod request;

/// The version of requests and answers, which a change of either raises. Each side refuses a peer of another version.
pub const VERSION: u64 = 2;
