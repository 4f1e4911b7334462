from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

rerun(
    Plan(
        seed=0,
        parties=(Party("http", "handshake", lanes=((Act("keep_listening"),), (Act("keep_listening"),))),),
        mishaps=(Mishap("restarts", at=1.036, on=60, lasts=5.0),),
        durable=True,
        delay=0.2,
        splits=0.3,
    )
)
