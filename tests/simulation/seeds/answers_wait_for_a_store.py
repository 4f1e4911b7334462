from mcpio.testing.simulation import Party, Plan, rerun

rerun(
    Plan(
        seed=1,
        parties=(Party("http", "handshake", keeps=False, lanes=()),),
        durable=True,
    )
)
