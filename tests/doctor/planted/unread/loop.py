# use_fused: to be done
def step(model, batch, config, clip):
    loss = model(batch)
    loss.backward()
    clip(model.parameters(), config.max_grad_norm)
