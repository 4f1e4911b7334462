from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

rerun(
    Plan(
        seed=0,
        parties=(
            Party(
                "pipe",
                "auto",
                keeps=False,
                lanes=(
                    (),
                    (
                        Act("keep_listening", after=0.1, lasts=0.05, timeout=60.0, cancel=0.0),
                        Act("keep_listening", after=0.1),
                        Act("keep_listening", after=0.1, lasts=0.05, size=3, timeout=1.0),
                    ),
                ),
            ),
            Party(
                "pipe",
                "auto",
                keeps=True,
                lanes=(
                    (Act("keep_listening", after=0.1, lasts=0.05, cancel=0.0),),
                    (Act("keep_listening", after=0.1, size=2, timeout=1.0),),
                ),
            ),
            Party(
                "pipe",
                "auto",
                keeps=False,
                lanes=(
                    (Act("keep_listening", after=0.01, lasts=0.05, timeout=1.0, cancel=0.02),),
                    (Act("touch", after=0.1, lasts=0.5, size=2, timeout=60.0),),
                    (Act("keep_listening", after=0.1, size=3, timeout=60.0),),
                ),
            ),
        ),
        mishaps=(Mishap("restarts", at=1.766, on=75),),
        processes=3,
        shuffles=True,
        calm_at=5.0,
        delay=0.2,
        splits=0.3,
        duplicates=0.3,
    )
)
