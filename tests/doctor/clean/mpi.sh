export NCCL_DEBUG=WARN
NCCL_IB_HCA=mlx5
out_dir="log_gpt2"
while true; do
  if [ -f "$out_dir/DONE" ]; then break; fi
  mpirun -np 8 -x NCCL_IB_HCA=$NCCL_IB_HCA -x PATH ./train_gpt2cu -i "data/*.bin" -o $out_dir -y 1
  sleep 1
done
rm -rf build
cp -r "$SLURM_SUBMIT_DIR/src" build
