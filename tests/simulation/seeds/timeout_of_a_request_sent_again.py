from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

rerun(
    Plan(
        seed=303,
        parties=(
            Party(
                "pipe",
                "stateless",
                keeps=True,
                lanes=(
                    (
                        Act("hang"),
                        Act("hang", timeout=60.0),
                    ),
                ),
            ),
        ),
        mishaps=(
            Mishap("vanishing", at=15.084, on=87),
            Mishap("stalls", at=23.224, on=68, lasts=15.0),
            Mishap("restarts", at=27.066, on=32, lasts=15.0),
        ),
        durable=True,
        calm_at=60.0,
    )
)
