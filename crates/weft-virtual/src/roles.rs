//! Roles of relays in paths: the flags that clients choose them by.

/// Positions in paths for which clients choose a relay. Without either it is a middle relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The flag Guard.
    pub guard: bool,
    /// The flag Exit, and a policy that allows every port.
    pub exit: bool,
}

/// Checks that a path is possible: a guard, an exit that is another relay, and a third.
pub(crate) fn check_roles(roles: &[Roles]) -> Result<(), String> {
    let guards: Vec<usize> = places(roles, |role| role.guard);
    let exits: Vec<usize> = places(roles, |role| role.exit);
    let problem = match (guards.as_slice(), exits.as_slice()) {
        ([], _) => "there is no guard among the relays: clients begin at one (roles = [\"guard\"])",
        (_, []) => "there is no exit among the relays: streams leave by one (roles = [\"exit\"])",
        ([guard], [exit]) if guard == exit => {
            "the only guard is the only exit: a path has two different ones"
        }
        _ if roles.len() < 3 => "there are fewer than three relays: a path has three",
        _ => return Ok(()),
    };
    Err(problem.to_owned())
}

fn places(roles: &[Roles], has: impl Fn(&Roles) -> bool) -> Vec<usize> {
    let all = roles.iter().enumerate();
    all.filter(|(_, role)| has(role))
        .map(|(place, _)| place)
        .collect()
}
