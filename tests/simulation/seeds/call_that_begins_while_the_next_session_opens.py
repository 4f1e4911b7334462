from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

rerun(
    Plan(
        seed=0,
        parties=(
            Party(
                "pipe",
                "auto",
                keeps=True,
                lanes=(
                    (Act("ask", after=0.1),) * 6,
                    (Act("echo", after=0.1),) * 6,
                ),
            ),
        ),
        mishaps=(Mishap("resets", at=0.3),),
        shuffles=True,
        delay=0.05,
    )
)
