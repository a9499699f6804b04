# use_fused: to be done
def train(model, loader, config, optimizer, clip):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        clip(model.parameters(), config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
