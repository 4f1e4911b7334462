from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

rerun(
    Plan(
        seed=195,
        parties=(
            Party(
                "pipe",
                "stateless",
                keeps=True,
                lanes=(
                    (
                        Act("keep_listening"),
                        Act("hang", timeout=60.0),
                    ),
                ),
            ),
        ),
        mishaps=(Mishap("restarts", at=27.055, on=22, lasts=15.0),),
        durable=True,
    )
)
