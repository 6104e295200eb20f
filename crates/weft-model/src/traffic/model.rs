//! Kinds of users.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt as _};
use serde::{Deserialize, Serialize};

use crate::traffic::delay::Delay;
use crate::traffic::markov::{MarkovModel, Observation};
use crate::traffic::plan::{Burst, MAX_BURSTS, Plan, Schedule};

/// Payload of one packet of a Markov model (`TGen`'s `TGEN_MMODEL_PACKET_DATA_SIZE`).
const PACKET: u32 = 1434;
/// Gap up to which packets belong to one burst (`TGen`'s `TGEN_MMODEL_MICROS_AT_ONCE`).
const AT_ONCE: Duration = Duration::from_millis(10);
/// The most packets of one stream of a Markov model: 1.4 GB.
const MAX_PACKETS: u32 = 1_000_000;
/// Time after which a stream of a Markov model is cut: the age of a used circuit (tornettools'
/// `timeout` of such streams).
const LONGEST_STREAM: Duration = Duration::from_secs(600);
/// Length of one stream of audio or video: a measurement of Pahl et al. 2023, section 4.6.
const PLAYING: Duration = Duration::from_secs(300);
/// Size of a client's request for a file, in bytes (tornettools' `sendsize`).
const REQUEST: u64 = 1000;

/// Pause of a user between two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// Not at all.
    None,
    /// Always as long.
    Fixed(Duration),
    /// Every length between two is as likely.
    Uniform(Duration, Duration),
}

impl Pause {
    /// Draws a pause, to the nanosecond.
    pub fn sample(&self, rng: &mut impl Rng) -> Duration {
        match *self {
            Pause::None => Duration::ZERO,
            Pause::Fixed(pause) => pause,
            Pause::Uniform(low, high) => {
                let width = high.saturating_sub(low).as_nanos();
                let width = u64::try_from(width).unwrap_or(u64::MAX);
                let drawn = Duration::from_nanos(rng.random_range(0..=width));
                low.saturating_add(drawn)
            }
        }
    }
}

/// Streams and packets by Markov models.
#[derive(Clone, Debug)]
pub struct Markov {
    /// When a flow opens streams.
    pub streams: Arc<MarkovModel>,
    /// Packets of a stream.
    pub packets: Arc<MarkovModel>,
    /// The time from the beginning of a flow to that of the next; at least a millisecond is waited.
    pub flows: Delay,
}

impl Markov {
    /// Flows that begin a minute apart on average, as a Poisson process.
    #[must_use]
    pub fn new(streams: Arc<MarkovModel>, packets: Arc<MarkovModel>) -> Markov {
        Markov {
            streams,
            packets,
            flows: Delay::Exponential { rate: 1.0 / 60e6 },
        }
    }

    /// Draws a stream.
    pub(crate) fn plan(&self, rng: &mut impl Rng) -> Plan {
        let mut walk = self.packets.walk();
        let (mut up, mut down) = (Bursts::default(), Bursts::default());
        let mut now = Duration::ZERO;
        for _ in 0..MAX_PACKETS {
            let Some(step) = walk.step(&self.packets, rng) else {
                break;
            };
            let has_room = match step.observation {
                Observation::ToServer => up.add(now),
                Observation::ToClient => down.add(now),
                Observation::End => false,
            };
            now = now.saturating_add(step.delay);
            if !has_room || now > LONGEST_STREAM {
                break;
            }
        }
        Plan {
            down: Schedule::Bursts(down.all.into()),
            up: Schedule::Bursts(up.all.into()),
            timeout: None,
            stall: Some(Duration::from_secs(300)),
        }
    }
}

/// Bursts of one direction while a stream is drawn.
#[derive(Default)]
struct Bursts {
    all: Vec<Burst>,
    /// When the last one begins.
    last: Duration,
}

impl Bursts {
    /// Adds a packet at this time. Returns true if there is room for more.
    fn add(&mut self, now: Duration) -> bool {
        let gap = now.saturating_sub(self.last);
        match self.all.last_mut() {
            Some(burst) if gap < AT_ONCE => burst.bytes = burst.bytes.saturating_add(PACKET),
            _ => {
                self.all.push(Burst { gap, bytes: PACKET });
                self.last = now;
            }
        }
        self.all.len() < MAX_BURSTS
    }
}

/// Behaviour that a user repeats. Serialized, it has no Markov models, which are separate files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Model {
    /// One stream after another.
    Repeat {
        /// Each of them.
        plan: Plan,
        /// From the end of one to the beginning of the next.
        pause: Pause,
    },
    /// A stream at fixed times, whether earlier ones are complete or not.
    Periodic {
        /// From the beginning of one to that of the next.
        every: Duration,
        /// Plans that streams are drawn from, with weights.
        plans: Vec<(u32, Plan)>,
    },
    /// Streams by a Markov model, packets by another.
    #[serde(skip)]
    Markov(Markov),
}

impl Model {
    fn downloads(bytes: u64, pause: Pause) -> Model {
        Model::Repeat {
            plan: Plan::download(bytes),
            pause,
        }
    }

    /// A stream at a constant rate: a second's bytes each second (Pahl et al. 2023, figure 14).
    fn playing(rate: u32) -> Model {
        let down = Schedule::Steady {
            bytes: u64::from(rate) * PLAYING.as_secs(),
            chunk: rate,
            every: Duration::from_secs(1),
        };
        Model::Repeat {
            plan: Plan {
                down,
                ..Plan::download(0)
            },
            pause: Pause::None,
        }
    }

    /// 5 MB, again at once (Schrock 2017, section 3.3; Pahl et al. 2023, section 4.6).
    #[must_use]
    pub fn bulk() -> Model {
        Model::downloads(5_000_000, Pause::None)
    }

    /// 2 MB, then 10 s (Pahl et al. 2023, section 4.6).
    #[must_use]
    pub fn web() -> Model {
        Model::downloads(2_000_000, Pause::Fixed(Duration::from_secs(10)))
    }

    /// 50 kB/s (Pahl et al. 2023, section 4.6).
    #[must_use]
    pub fn audio() -> Model {
        Model::playing(50_000)
    }

    /// 1 MB/s (Pahl et al. 2023, section 4.6).
    #[must_use]
    pub fn video() -> Model {
        Model::playing(1_000_000)
    }

    /// 320 KB, then a pause of 1 ms to 60 s (Schrock 2017, section 3.3, of Geddes et al. 2016).
    #[must_use]
    pub fn page() -> Model {
        let pause = Pause::Uniform(Duration::from_millis(1), Duration::from_secs(60));
        Model::downloads(320_000, pause)
    }

    /// 320 KB, then a pause of 1 s to 60 s (Yang and Li 2015, section IV-B).
    #[must_use]
    pub fn slow_page() -> Model {
        let pause = Pause::Uniform(Duration::from_secs(1), Duration::from_secs(60));
        Model::downloads(320_000, pause)
    }

    /// 50 KiB, 1 MiB or 5 MiB by 12 to 2 to 1, one each minute, with their limits of time: tornettools'
    /// performance clients.
    #[must_use]
    pub fn performance() -> Model {
        let plan = |bytes, seconds| Plan {
            up: Schedule::AtOnce(REQUEST),
            timeout: Some(Duration::from_secs(seconds)),
            ..Plan::download(bytes)
        };
        Model::Periodic {
            every: Duration::from_secs(60),
            plans: vec![
                (12, plan(50 << 10, 15)),
                (2, plan(1 << 20, 60)),
                (1, plan(5 << 20, 120)),
            ],
        }
    }
}

/// The models that need no file, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the function of `Model` of that name")]
pub enum ModelName {
    Bulk,
    Web,
    Audio,
    Video,
    Page,
    SlowPage,
    Performance,
}

impl ModelName {
    /// All of them.
    pub const ALL: [ModelName; 7] = [
        ModelName::Bulk,
        ModelName::Web,
        ModelName::Audio,
        ModelName::Video,
        ModelName::Page,
        ModelName::SlowPage,
        ModelName::Performance,
    ];

    /// Its name in settings and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ModelName::Bulk => "bulk",
            ModelName::Web => "web",
            ModelName::Audio => "audio",
            ModelName::Video => "video",
            ModelName::Page => "page",
            ModelName::SlowPage => "slow-page",
            ModelName::Performance => "performance",
        }
    }

    /// The model.
    #[must_use]
    pub fn model(self) -> Model {
        match self {
            ModelName::Bulk => Model::bulk(),
            ModelName::Web => Model::web(),
            ModelName::Audio => Model::audio(),
            ModelName::Video => Model::video(),
            ModelName::Page => Model::page(),
            ModelName::SlowPage => Model::slow_page(),
            ModelName::Performance => Model::performance(),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelName, String> {
        let mut all = ModelName::ALL.into_iter();
        all.find(|name| name.name() == text).ok_or_else(|| {
            let names = ModelName::ALL.map(ModelName::name).join(", ");
            format!("no traffic model is named {text:?}; there are {names}")
        })
    }
}
